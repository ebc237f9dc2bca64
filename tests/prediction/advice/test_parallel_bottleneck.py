"""Verdicts and what-ifs: the seed's findings on its voice models and MNIST, and every limit by name."""

from __future__ import annotations

from functools import cache

import pytest
from foretrain.prediction.advice.counterfactuals import fast_link
from foretrain.prediction.many_devices import Parallelism
from tests.support.smaller_devices import with_memory

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import hardware
from foretrain.prediction.advice.bottleneck import Limit
from foretrain.prediction.answer import ParallelismReport, Prediction
from foretrain.prediction.predict import predict
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.requests import WorkloadRequest, workload_of


@cache
def told(
    model: str,
    on: str,
    strategy: str = "ddp",
    batch: int = 20,
    global_batch: int | None = None,
    links: str | None = None,
    dataset: str | None = None,
    micro_batches: int | None = None,
) -> Prediction:
    workload = workload_of(WorkloadRequest(model, batch=batch))
    parallelism = Parallelism(strategy, micro_batches, global_batch, links)
    return predict(workload, hardware(on), parallelism, input_options=InputOptions(dataset, "hdd"))


def spread_of(prediction: Prediction) -> ParallelismReport:
    assert prediction.spread is not None
    return prediction.spread


def gains(prediction: Prediction) -> dict[str, float]:
    return {each.change: each.gain for each in prediction.bottleneck.advice if each.gain is not None}


def speeds(prediction: Prediction) -> dict[int, float]:
    scaling = spread_of(prediction).scaling
    assert scaling is not None
    return {point.devices: point.samples_per_second for point in scaling.points}


def test_the_seeds_linear_voice_model_is_a_network_choke() -> None:
    found = told("voice-linear", "gtx1080ti:4", "dp")
    assert found.bottleneck.kind is Limit.NETWORK
    assert found.bottleneck.verdict.startswith("network choke")
    assert "fewer are faster: 1 of them" in found.bottleneck.verdict
    assert speeds(found)[1] > max(speeds(found)[count] for count in (2, 4))
    assert gains(found)["NVLink (nvlink2:6) instead of pcie3-x16"] > 2


def test_ten_gigabytes_move_in_an_epoch_of_100_steps() -> None:
    found = spread_of(told("voice-linear", "gtx1080ti:4", "dp"))
    by_name = {each.name: each.bytes for each in found.exchanges}
    assert by_name["copy parameters"] == by_name["reduce gradients"] == pytest.approx(48.4e6, rel=1e-3)
    assert 100 * found.moved_bytes == pytest.approx(10e9, rel=0.05)


def test_the_seeds_convolutional_voice_model_is_a_gpu_choke() -> None:
    found = told("voice-conv", "gtx1080ti:4", "dp", batch=200)
    assert found.bottleneck.kind is Limit.GPU
    assert found.bottleneck.verdict.startswith("GPU choke")
    assert "twice as many devices would bring 1." in found.bottleneck.verdict
    assert speeds(found)[1] < speeds(found)[2] < speeds(found)[4] < speeds(found)[8]
    assert gains(found)["2x GPUs"] > 1.5
    assert gains(found)["half the GPUs"] < 0.7


def test_the_seeds_surprise_mnist_is_fastest_on_one() -> None:
    found = told("mnist-cnn", "rtx2080ti:8", "dp", batch=8, global_batch=64)
    scaling = spread_of(found).scaling
    assert scaling is not None
    assert scaling.best == scaling.knee == 1
    assert scaling.is_batch_fixed
    assert [point.devices for point in scaling.points] == [1, 2, 4, 8]
    falling = [point.samples_per_second for point in scaling.points]
    assert falling == sorted(falling, reverse=True)
    assert {point.global_batch for point in scaling.points} == {64}


def test_every_change_is_told_with_what_it_brings() -> None:
    found = told("voice-linear", "gtx1080ti:4")
    assert set(gains(found)) == {
        "2x GPUs", "half the GPUs", "2x batch", "accumulate 2 batches",
        "NVLink (nvlink2:6) instead of pcie3-x16", "2x links",
    }  # fmt: skip
    now = found.throughput.samples_per_second
    for advice in found.bottleneck.advice:
        assert advice.gain is not None
        assert advice.samples_per_second == pytest.approx(advice.gain * now)
        assert advice.step_seconds is not None


def test_faster_links_never_hurt_and_larger_batches_hide_them() -> None:
    found = gains(told("voice-linear", "gtx1080ti:4"))
    assert found["2x links"] > 1
    assert found["2x batch"] > 1.5
    assert found["accumulate 2 batches"] > 1.5


def test_half_precision_is_offered_where_the_device_has_it() -> None:
    assert "fp16" in gains(told("voice-conv", "t4:2"))
    assert not {"fp16", "bf16"} & set(gains(told("voice-linear", "gtx1080ti:4")))


def test_the_asked_number_is_on_the_curve_whatever_it_is() -> None:
    found = told("voice-linear", "gtx1080ti:6")
    assert set(speeds(found)) >= {1, 2, 4, 6, 8}
    assert speeds(found)[6] == pytest.approx(found.throughput.samples_per_second)


def test_efficiency_is_speed_per_device_against_one() -> None:
    scaling = spread_of(told("voice-conv", "gtx1080ti:4", "dp", batch=200)).scaling
    assert scaling is not None
    one = scaling.points[0].samples_per_second
    for point in scaling.points:
        assert point.efficiency == pytest.approx(point.samples_per_second / point.devices / one)
        assert 0 <= point.exposed_share < 1


def test_links_given_by_name_stay_when_the_hardware_grows() -> None:
    slow, fast = (told("voice-linear", "t4:2", links=links) for links in ("pcie3-x8", "pcie3-x16"))
    assert speeds(slow)[4] < speeds(fast)[4]


def test_devices_wait_for_slow_disks() -> None:
    found = told("mnist-cnn", "t4:2", dataset="imagenet-jpeg")
    assert found.bottleneck.kind is Limit.INPUT
    assert "wait for their samples" in found.bottleneck.verdict


def test_what_does_not_fit_is_told_with_layouts_that_do() -> None:
    """Four replicas of the voice model need 1.8 GB each; divided, it needs less."""
    workload = workload_of(WorkloadRequest("voice-linear", batch=20))
    found = predict(workload, with_memory("gtx1080ti:4", 1.7e9), Parallelism("ddp"))
    assert found.bottleneck.kind is Limit.MEMORY
    assert not found.memory.fits
    assert "on the fullest device" in found.bottleneck.verdict
    fitting = [remedy for remedy in found.memory.advice if remedy.fits]
    assert fitting
    assert all(remedy.change.startswith("--strategy ") for remedy in fitting)
    assert all(remedy.bytes < found.memory.bytes.p50 for remedy in fitting)


def test_stages_are_named_and_their_waits_told() -> None:
    found = told("resnet18", "a100-sxm-80gb:4", "pp=4", batch=8, micro_batches=4)
    spread = spread_of(found)
    assert len(spread.stages) == 4
    assert spread.bubble_seconds > 0
    assert any(part.name == "waiting for other stages" for part in found.step.parts)
    assert found.memory.largest_batch >= 8


def test_nvlink_of_the_same_generation_is_offered() -> None:
    found = fast_link(hardware("a100-pcie-40gb:4"))
    assert found is not None
    assert found.startswith("nvswitch2")


def test_a_model_too_large_for_everything_is_refused_with_what_would_help() -> None:
    workload = workload_of(WorkloadRequest("mnist-cnn", batch=64))
    with pytest.raises(
        InvalidRequest, match=r"leanest of \d+ layouts .*use more devices, a smaller global batch"
    ):
        predict(workload, with_memory("t4:2", 1e9), Parallelism("auto"))
