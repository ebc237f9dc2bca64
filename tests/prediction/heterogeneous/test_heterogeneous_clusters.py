"""Clusters whose nodes differ: the seed's slow node, limits, links, and equal nodes as they always were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from foretrain.prediction.heterogeneous.predict import MixedRequest, predict_mixed
from foretrain.prediction.many_devices import Parallelism
from tests.support.convolving import workload_named

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.facts.clusters import Cluster
from foretrain.facts.devices import Device, device
from foretrain.facts.hardware import Hardware, hardware
from foretrain.facts.sheets import Sheet
from foretrain.prediction.answer import MixedPrediction
from foretrain.prediction.collectives.network import network_among
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.heterogeneous.division import Divider
from foretrain.prediction.predict import predict
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.workload import Workload

FAST_NETWORK = "infiniband-ndr:8"
ROOFLINE = OperatorCostModel("roofline")


def with_figures(original: Device, name: str, speed: float = 1.0, memory: float = 1.0) -> Device:
    """A device so many times as fast, with so much of the memory."""
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


def asked(
    workload: Workload,
    on: Cluster,
    batch: int,
    least_batch: int | None = None,
    jitter: float | None = 0.0,
) -> MixedPrediction | Infeasible:
    """Of devices that do not vary from step to step, unless told otherwise."""
    parallelism = Parallelism(global_batch=batch, jitter=jitter)
    return predict_mixed(MixedRequest(workload, on, ROOFLINE, parallelism, InputOptions(), least_batch))


def found(workload: Workload, on: Cluster, batch: int, least_batch: int | None = None) -> MixedPrediction:
    answer = asked(workload, on, batch, least_batch)
    assert isinstance(answer, MixedPrediction), answer
    return answer


def batches(prediction: MixedPrediction) -> list[tuple[int, ...]]:
    return [share.batches for share in prediction.split.shares]


@pytest.fixture
def convolving(tmp_path: Path) -> Workload:
    return workload_named(tmp_path, "convolving")


@pytest.fixture
def multiplying(tmp_path: Path) -> Workload:
    return workload_named(tmp_path, "multiplying")


def test_the_seeds_slow_node_takes_one_of_21(convolving: Workload) -> None:
    """One device 20 times as fast: of 840 samples the slow one takes 40, and 4.8 % of the step are saved.

    But for one sample: what a step takes whatever the batch takes the slow one 20 times as long, too.
    """
    prediction = found(convolving, cluster(node(FAST), node(SLOW)), 840)
    ((many,), (few,)) = batches(prediction)
    assert many + few == 840
    assert few in (39, 40)
    assert prediction.split.left_out == ()
    assert f"slow helps: with {few} of 840 samples it shortens a step from" in prediction.split.verdict
    gains = {advice.change: advice.gain for advice in prediction.bottleneck.advice}
    assert gains["without slow"] == pytest.approx(200 / 210, rel=0.01)
    assert gains["even split over all nodes"] == pytest.approx(10 / 105, rel=0.02)
    assert gains["without t4"] == pytest.approx(10 / 210, rel=0.02)
    seconds = prediction.step.seconds
    assert sum(part.seconds for part in prediction.step.parts) == pytest.approx(seconds.p50)
    assert prediction.throughput.samples_per_second == pytest.approx(840 / seconds.p50)
    ends = [share.seconds for share in prediction.split.shares]
    assert ends[0] == pytest.approx(ends[1], rel=0.03)
    assert max(end for end in ends if end) == pytest.approx(seconds.p50)
    assert any("scale each device's loss" in note for note in prediction.notes)


@pytest.mark.parametrize("batch", [23, 64, 101])
def test_every_sample_is_trained_on_once_and_as_soon_as_can_be(convolving: Workload, batch: int) -> None:
    """No division of the batch over the same two devices is faster: all of them tried."""
    third = with_figures(FAST, "third", speed=1 / 3)
    groups = (node(FAST), node(third))
    divider = Divider(convolving, batch, 2, ROOFLINE, InputOptions())
    network = network_among(groups)
    best = divider.fastest(groups, network)
    assert best is not None
    assert best.global_batch == batch
    tried = [divider.divided(groups, (batch - few, few), network).seconds for few in range(1, batch)]
    assert best.seconds == pytest.approx(min(tried), rel=1e-3)


def test_memory_limits_the_fast_device(convolving: Workload) -> None:
    small = with_figures(FAST, "small", memory=0.2)
    half = with_figures(FAST, "half", speed=1 / 2)
    prediction = found(convolving, cluster(node(small), node(half)), 512)
    fast, slow = prediction.split.shares
    assert fast.batches == (fast.largest_batch,)
    assert fast.largest_batch < 512 * 2 / 3
    assert slow.samples == 512 - fast.samples
    assert fast.fits
    assert slow.fits
    assert "half is needed" in prediction.split.verdict
    assert prediction.split.verdict.endswith("small would take more samples if memory held them")
    assert prediction.memory.capacity_bytes == fast.capacity_bytes


def test_a_batch_that_nobody_holds_is_answered(convolving: Workload) -> None:
    small = with_figures(FAST, "small", memory=0.2)
    answer = asked(convolving, cluster(node(small), node(with_figures(small, "half", 0.5))), 1 << 14)
    assert isinstance(answer, Infeasible)
    assert "use a global batch of at most" in str(answer)
    most = int(str(answer).rsplit(" ", 1)[1])
    whole = found(convolving, cluster(node(small), node(with_figures(small, "half", 0.5))), most)
    assert whole.split.left_out == ()


def test_devices_that_cannot_hold_one_sample_are_left_out(convolving: Workload) -> None:
    tiny = with_figures(FAST, "tiny", memory=0.01)
    prediction = found(convolving, cluster(node(FAST), node(tiny)), 64)
    assert prediction.split.left_out == ("tiny",)
    assert "tiny cannot hold the model" in prediction.split.verdict


def test_over_slow_ethernet_the_slow_node_only_hinders(multiplying: Workload) -> None:
    """25 million parameters take 0.8 s at 1 Gbit/s; the fast device trains on all samples in a fraction."""
    over = "ethernet-1g"
    prediction = found(multiplying, cluster(node(FAST, over), node(SLOW, over)), 2100)
    assert prediction.split.left_out == ("slow",)
    assert batches(prediction) == [(2100,), ()]
    assert prediction.split.verdict.startswith("leave out slow: a step takes")
    assert "at the pace of ethernet-1g, and without them not at all" in prediction.split.verdict
    assert not any("scale each device's loss" in note for note in prediction.notes)
    with_all = next(each for each in prediction.bottleneck.advice if each.change.startswith("all nodes"))
    assert with_all.gain is not None
    assert with_all.gain < 0.5


def test_a_fast_device_behind_a_slow_link_is_left_out(multiplying: Workload) -> None:
    faster = with_figures(FAST, "faster", speed=1.2)
    on = cluster(node(faster, "ethernet-1g"), node(FAST), node(with_figures(FAST, "twin")))
    prediction = found(multiplying, on, 20_000)
    assert prediction.split.left_out == ("faster",)


def test_below_its_least_useful_batch_the_slow_node_is_left_out(convolving: Workload) -> None:
    on = cluster(node(FAST), node(SLOW))
    prediction = found(convolving, on, 210, least_batch=32)
    assert prediction.split.left_out == ("slow",)
    assert prediction.split.least_batch == 32
    assert "without; its least batch of 32 takes slow that long" in prediction.split.verdict
    few = found(convolving, on, 40, least_batch=32)
    assert "all devices need 64 samples together" in few.split.verdict
    none = asked(convolving, on, 20, least_batch=32)
    assert isinstance(none, Infeasible)
    assert "32 or more" in str(none)


def test_batch_norm_of_single_values_needs_two_samples(tmp_path: Path) -> None:
    divider = Divider(workload_named(tmp_path, "normalising"), 8, 2, ROOFLINE, InputOptions())
    assert divider.least_batch == 2


def test_few_samples_use_few_of_many_nodes(convolving: Workload) -> None:
    prediction = found(convolving, cluster(node(FAST, nodes=8), node(SLOW, nodes=2)), 4)
    fast, slow = prediction.split.shares
    assert 1 <= fast.nodes_used <= 4
    assert slow.nodes_used == 0
    assert prediction.split.left_out == (f"{8 - fast.nodes_used} of the 8 nodes of t4", "slow")


def test_groups_that_differ_in_name_only_are_as_equal_nodes(convolving: Workload) -> None:
    twin = replace(hardware("t4:4"), network="ethernet-10g")
    prediction = found(convolving, cluster(twin, replace(twin, name="other")), 256)
    whole = replace(hardware("t4:4x2"), network="ethernet-10g")
    even = Parallelism(global_batch=256, jitter=0.0)
    same = predict(convolving, whole, even, ROOFLINE, with_advice=False)
    assert batches(prediction) == [(32,) * 4, (32,) * 4]
    assert prediction.step.seconds.p50 == pytest.approx(same.step.seconds.p50, rel=1e-12)
    assert prediction.throughput.mfu == pytest.approx(same.throughput.mfu, rel=1e-12)
    assert prediction.memory.bytes == same.memory.bytes


def test_nodes_that_differ_wait_for_the_slowest_device_too(convolving: Workload) -> None:
    """As equal ones do, by how much GPUs usually vary."""
    on = cluster(node(FAST), node(SLOW))
    even, usual = (asked(convolving, on, 840, jitter=jitter) for jitter in (0.0, None))
    assert isinstance(even, MixedPrediction)
    assert isinstance(usual, MixedPrediction)
    assert usual.step.seconds.p50 > even.step.seconds.p50


@pytest.mark.parametrize(
    ("spreading", "message"),
    [
        (Parallelism("tp=2,dp=2"), "--strategy ddp alone"),
        (Parallelism("zero3"), "wants equal nodes"),
        (Parallelism(micro_batches=2), "--micro-batches wants equal batches"),
        (Parallelism(intra="pcie3-x16"), "at each entry of the file"),
    ],
)
def test_what_wants_equal_nodes_is_refused(
    convolving: Workload, parallelism: Parallelism, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        MixedRequest(convolving, cluster(node(FAST), node(SLOW)), ROOFLINE, parallelism, InputOptions())


def test_a_least_batch_below_one_is_refused(convolving: Workload) -> None:
    with pytest.raises(InvalidRequest, match="at least 1"):
        asked(convolving, cluster(node(FAST), node(SLOW)), 8, least_batch=0)
