"""Heterogeneous clusters through `predict`: a slow node, limits, links, and equal nodes as one group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.convolving import workload_named
from tests.support.scenarios import predicted, scenario
from tests.support.scenarios import workload as zoo_workload

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device, device
from foretrain.facts.hardware import Cluster, Hardware, hardware
from foretrain.facts.hardware import cluster as cluster_of
from foretrain.facts.sheets import Sheet
from foretrain.prediction.answer import Prediction
from foretrain.prediction.collectives.network import network_among
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.heterogeneous.division import BatchSplit, GlobalBatch
from foretrain.prediction.options import InputOptions
from foretrain.prediction.predict import predict
from foretrain.workloads.workload import Workload

FAST_NETWORK = "infiniband-ndr:8"
ROOFLINE = OperatorCostModel("roofline")


def with_figures(original: Device, name: str, speed: float = 1.0, memory: float = 1.0) -> Device:
    """A device with its speed and its memory multiplied."""
    facts = tuple(
        replace(fact, value=factor * fact.value)
        if not isinstance(fact.value, str) and (factor := _factor(fact.quantity, speed, memory)) != 1
        else fact
        for fact in original.sheet
    )
    return replace(original, id=name, sheet=Sheet(name, facts))


def _factor(quantity: str, speed: float, memory: float) -> float:
    if quantity == "memory_bytes":
        return memory
    return speed if quantity == "memory_bytes_per_second" or quantity.endswith("flop_per_second") else 1.0


FAST = device("t4")
SLOW = with_figures(FAST, "slow", speed=1 / 20)


def node(of: Device, network: str = FAST_NETWORK, devices: int = 1, nodes: int = 1) -> Hardware:
    return Hardware(of.id, of, devices, nodes, network=network)


def cluster(*groups: Hardware) -> Cluster:
    return Cluster("lab.yaml", groups)


def answer_of(
    workload: Workload,
    on: Cluster,
    batch: int,
    min_batch: int | None = None,
    jitter: float | None = 0.0,
) -> Prediction | Infeasible:
    """Step times do not vary across devices, unless the jitter is given."""
    return predict(
        scenario(workload, on, ROOFLINE, advice=True, global_batch=batch, min_batch=min_batch, jitter=jitter)
    )


def prediction_of(workload: Workload, on: Cluster, batch: int, min_batch: int | None = None) -> Prediction:
    answer = answer_of(workload, on, batch, min_batch)
    assert isinstance(answer, Prediction), str(answer)
    return answer


def split_of(prediction: Prediction) -> BatchSplit:
    assert prediction.split is not None
    return prediction.split


def batches(prediction: Prediction) -> list[tuple[int, ...]]:
    return [share.batches for share in split_of(prediction).shares]


@pytest.fixture
def convolving(tmp_path: Path) -> Workload:
    return workload_named(tmp_path, "convolving")


@pytest.fixture
def multiplying(tmp_path: Path) -> Workload:
    return workload_named(tmp_path, "multiplying")


def test_a_slow_node_takes_one_of_21_samples(convolving: Workload) -> None:
    """One device 20 times as fast: of 840 samples the slow one takes 40, and 4.8 % of the step are saved.

    But for one sample: what a step takes whatever the batch takes the slow one 20 times as long, too.
    """
    prediction = prediction_of(convolving, cluster(node(FAST), node(SLOW)), 840)
    ((many,), (few,)) = batches(prediction)
    assert many + few == 840
    assert few in (39, 40)
    assert split_of(prediction).excluded == ()
    assert f"slow helps: with {few} of 840 samples it shortens a step from" in split_of(prediction).verdict
    gains = {advice.change: advice.gain for advice in prediction.bottleneck.advice}
    assert gains["without slow"] == pytest.approx(200 / 210, rel=0.01)
    assert gains["even split over all nodes"] == pytest.approx(10 / 105, rel=0.02)
    assert gains["without t4"] == pytest.approx(10 / 210, rel=0.02)
    seconds = prediction.step.seconds
    assert sum(part.seconds for part in prediction.step.parts) == pytest.approx(seconds.p50)
    assert prediction.throughput.samples_per_second == pytest.approx(840 / seconds.p50)
    ends = [share.seconds for share in split_of(prediction).shares]
    assert ends[0] == pytest.approx(ends[1], rel=0.03)
    assert max(end for end in ends if end) == pytest.approx(seconds.p50)
    assert any("scale each device's loss" in note for note in prediction.notes)


@pytest.mark.parametrize("batch", [23, 64, 101])
def test_no_division_of_the_batch_is_faster(convolving: Workload, batch: int) -> None:
    """All divisions of the batch over the same two devices are tried."""
    third = with_figures(FAST, "third", speed=1 / 3)
    groups = (node(FAST), node(third))
    whole = GlobalBatch(convolving, batch, 2, ROOFLINE, InputOptions())
    network = network_among(groups)
    best = whole.fastest(groups, network)
    assert best is not None
    assert best.global_batch == batch
    tried = [whole.division(groups, (batch - few, few), network).seconds for few in range(1, batch)]
    assert best.seconds == pytest.approx(min(tried), rel=1e-3)


def test_memory_limits_the_fast_device(convolving: Workload) -> None:
    small = with_figures(FAST, "small", memory=0.2)
    half = with_figures(FAST, "half", speed=1 / 2)
    prediction = prediction_of(convolving, cluster(node(small), node(half)), 512)
    fast, slow = split_of(prediction).shares
    assert fast.batches == (fast.largest_batch,)
    assert fast.largest_batch < 512 * 2 / 3
    assert slow.samples == 512 - fast.samples
    assert fast.fits
    assert slow.fits
    assert "half is needed" in split_of(prediction).verdict
    assert split_of(prediction).verdict.endswith("memory limits the samples of small")
    assert prediction.memory.capacity_bytes == fast.capacity_bytes


def test_a_batch_that_does_not_fit_is_infeasible(convolving: Workload) -> None:
    small = with_figures(FAST, "small", memory=0.2)
    answer = answer_of(convolving, cluster(node(small), node(with_figures(small, "half", 0.5))), 1 << 14)
    assert isinstance(answer, Infeasible)
    assert "use a global batch of at most" in str(answer)
    most = int(str(answer).rsplit(" ", 1)[1])
    whole = prediction_of(convolving, cluster(node(small), node(with_figures(small, "half", 0.5))), most)
    assert split_of(whole).excluded == ()


def test_devices_that_cannot_hold_one_sample_are_excluded(convolving: Workload) -> None:
    tiny = with_figures(FAST, "tiny", memory=0.01)
    prediction = prediction_of(convolving, cluster(node(FAST), node(tiny)), 64)
    assert split_of(prediction).excluded == ("tiny",)
    assert "tiny cannot hold the model" in split_of(prediction).verdict


def test_over_slow_ethernet_the_slow_node_is_excluded(multiplying: Workload) -> None:
    """25 million parameters take 0.8 s at 1 Gbit/s; the fast device trains on all samples in a fraction."""
    over = "ethernet-1g"
    prediction = prediction_of(multiplying, cluster(node(FAST, over), node(SLOW, over)), 2100)
    assert split_of(prediction).excluded == ("slow",)
    assert batches(prediction) == [(2100,), ()]
    assert split_of(prediction).verdict.startswith("exclude slow: a step takes")
    assert "for communication over ethernet-1g, without them not at all" in split_of(prediction).verdict
    assert not any("scale each device's loss" in note for note in prediction.notes)
    with_all = next(each for each in prediction.bottleneck.advice if each.change.startswith("all nodes"))
    assert with_all.gain is not None
    assert with_all.gain < 0.5


def test_a_fast_device_behind_a_slow_link_is_excluded(multiplying: Workload) -> None:
    faster = with_figures(FAST, "faster", speed=1.2)
    on = cluster(node(faster, "ethernet-1g"), node(FAST), node(with_figures(FAST, "twin")))
    prediction = prediction_of(multiplying, on, 20_000)
    assert split_of(prediction).excluded == ("faster",)


def test_below_its_minimum_batch_the_slow_node_is_excluded(convolving: Workload) -> None:
    on = cluster(node(FAST), node(SLOW))
    prediction = prediction_of(convolving, on, 210, min_batch=32)
    assert split_of(prediction).excluded == ("slow",)
    assert split_of(prediction).min_batch == 32
    assert "slow takes that long for the minimum batch of 32" in split_of(prediction).verdict
    few = prediction_of(convolving, on, 40, min_batch=32)
    assert (
        "minimum batches of all devices add up to 64 samples, above the global batch of 40"
        in split_of(few).verdict
    )
    none = answer_of(convolving, on, 20, min_batch=32)
    assert isinstance(none, Infeasible)
    assert "32 or more" in str(none)


def test_batch_norm_of_single_values_needs_two_samples(tmp_path: Path) -> None:
    workload = workload_named(tmp_path, "normalising")
    whole = GlobalBatch(workload, 8, 2, ROOFLINE, InputOptions())
    assert whole.min_batch == 2


def test_few_samples_use_few_of_many_nodes(convolving: Workload) -> None:
    prediction = prediction_of(convolving, cluster(node(FAST, nodes=8), node(SLOW, nodes=2)), 4)
    fast, slow = split_of(prediction).shares
    assert 1 <= fast.nodes_used <= 4
    assert slow.nodes_used == 0
    assert split_of(prediction).excluded == (f"{8 - fast.nodes_used} of the 8 nodes of t4", "slow")


def test_groups_that_differ_in_name_only_are_predicted_as_equal_nodes(convolving: Workload) -> None:
    twin = replace(hardware("t4:4"), network="ethernet-10g")
    prediction = prediction_of(convolving, cluster(twin, replace(twin, name="other")), 256)
    whole = replace(hardware("t4:4x2"), network="ethernet-10g")
    same = predicted(convolving, whole, ROOFLINE, global_batch=256, jitter=0.0)
    assert batches(prediction) == [(32,) * 4, (32,) * 4]
    assert prediction.step.seconds.p50 == pytest.approx(same.step.seconds.p50, rel=1e-12)
    assert prediction.throughput.mfu == pytest.approx(same.throughput.mfu, rel=1e-12)
    assert prediction.memory.bytes == same.memory.bytes


def test_heterogeneous_nodes_wait_for_the_slowest_device_too(convolving: Workload) -> None:
    """By default with the usual jitter of GPUs, as equal nodes do."""
    on = cluster(node(FAST), node(SLOW))
    even, usual = (answer_of(convolving, on, 840, jitter=jitter) for jitter in (0.0, None))
    assert isinstance(even, Prediction)
    assert isinstance(usual, Prediction)
    assert usual.step.seconds.p50 > even.step.seconds.p50


@pytest.mark.parametrize(
    ("parallelism", "message"),
    [
        ({"strategy": "tp=2,dp=2"}, "supports strategy ddp only"),
        ({"strategy": "zero3"}, "requires equal nodes"),
        ({"micro_batches": 2}, "micro_batches requires equal batches"),
        ({"links": "pcie3-x16"}, "at each entry of the cluster file"),
    ],
)
def test_what_requires_equal_nodes_is_refused(
    convolving: Workload, parallelism: dict[str, Any], message: str
) -> None:
    on = cluster(node(FAST), node(SLOW))
    with pytest.raises(InvalidRequest, match=message):
        predict(scenario(convolving, on, ROOFLINE, global_batch=8, **parallelism))


def test_a_min_batch_below_one_is_refused(convolving: Workload) -> None:
    with pytest.raises(InvalidRequest, match="min_batch must be at least 1, got 0"):
        answer_of(convolving, cluster(node(FAST), node(SLOW)), 8, min_batch=0)


def test_batch_and_global_batch_that_disagree_are_refused() -> None:
    on = cluster(node(FAST), node(SLOW))
    message = "batch 8 on 2 devices is a global batch of 16, but global_batch is 64; give one of them"
    with pytest.raises(InvalidRequest, match=message):
        predict(scenario(zoo_workload("mnist-cnn", batch=8), on, ROOFLINE, global_batch=64))


def test_a_cluster_file_is_predicted_from_python(tmp_path: Path) -> None:
    """One scenario, one answer type, and plain data, for a file with two kinds of nodes."""
    file = tmp_path / "lab.yaml"
    file.write_text("nodes: [{device: t4, devices: 2}, {device: k80}]\nnetwork: infiniband-ndr:8\n")
    prediction = predicted(zoo_workload("cifar-resnet20", batch=64), cluster_of(str(file)), advice=True)
    split = split_of(prediction)
    assert prediction.parallelism.global_batch == prediction.batch == split.global_batch == 3 * 64
    assert sum(share.samples for share in split.shares) == 3 * 64
    assert [share.device for share in split.shares] == ["t4", "k80"]
    assert prediction.pacing_device == split.pacing_device
    assert prediction.fullest_device in ("t4", "k80")
    assert prediction.bottleneck.advice
    data = prediction.to_dict()
    assert [group["device"] for group in data["hardware"]["groups"]] == ["t4", "k80"]
    assert data["hardware"]["devices"] == 3
    assert data["split"]["verdict"] == split.verdict
    assert dict(prediction.summary())["hardware"].endswith("ddp")


def test_a_file_of_equal_nodes_is_predicted_as_the_same_hardware(tmp_path: Path) -> None:
    file = tmp_path / "equal.yaml"
    file.write_text("nodes: [{device: t4, devices: 4}]\n")
    images = zoo_workload("mnist-cnn", batch=64)
    assert predicted(images, cluster_of(str(file))).to_dict() == predicted(images, "t4:4").to_dict()
