"""Bottlenecks and what-ifs on many devices: voice models, MNIST, and every limit by name."""

from __future__ import annotations

import re
from functools import cache

import pytest
from tests.support.scenarios import predicted, scenario, workload
from tests.support.smaller_devices import with_memory

from foretrain.answers import Infeasible
from foretrain.facts.hardware import hardware
from foretrain.prediction.advice.bottleneck import Limit, fast_link
from foretrain.prediction.answer import Prediction
from foretrain.prediction.options import InputOptions
from foretrain.prediction.predict import predict


@cache
def prediction_of(
    model: str,
    on: str,
    strategy: str = "ddp",
    batch: int = 20,
    global_batch: int | None = None,
    links: str | None = None,
    dataset: str | None = None,
    micro_batches: int | None = None,
) -> Prediction:
    return predicted(
        workload(model, batch=batch),
        on,
        input_options=InputOptions(dataset=dataset, storage="hdd"),
        advice=True,
        strategy=strategy,
        micro_batches=micro_batches,
        global_batch=global_batch,
        links=links,
    )


def gains(prediction: Prediction) -> dict[str, float]:
    return {each.change: each.gain for each in prediction.bottleneck.advice if each.gain is not None}


def speeds(prediction: Prediction) -> dict[int, float]:
    scaling = prediction.parallelism.scaling
    assert scaling is not None
    return {point.devices: point.samples_per_second for point in scaling.points}


def test_a_linear_voice_model_is_a_network_choke() -> None:
    prediction = prediction_of("voice-linear", "gtx1080ti:4", "dp")
    assert prediction.bottleneck.kind is Limit.NETWORK
    assert prediction.bottleneck.verdict.startswith("network choke")
    assert re.search(r"1 GPU is \d+\.\d\dx faster than 4$", prediction.bottleneck.verdict)
    assert speeds(prediction)[1] > max(speeds(prediction)[count] for count in (2, 4))
    assert gains(prediction)["NVLink (nvlink2:6) instead of pcie3-x16"] > 2


def test_ten_gigabytes_move_in_an_epoch_of_100_steps() -> None:
    report = prediction_of("voice-linear", "gtx1080ti:4", "dp").parallelism
    by_name = {each.name: each.bytes for each in report.exchanges}
    assert by_name["copy parameters"] == by_name["reduce gradients"] == pytest.approx(48.4e6, rel=1e-3)
    assert 100 * report.moved_bytes == pytest.approx(10e9, rel=0.05)


def test_a_convolutional_voice_model_is_a_gpu_choke() -> None:
    prediction = prediction_of("voice-conv", "gtx1080ti:4", "dp", batch=200)
    assert prediction.bottleneck.kind is Limit.GPU
    assert prediction.bottleneck.verdict.startswith("GPU choke")
    assert "twice the GPUs would be 1." in prediction.bottleneck.verdict
    assert speeds(prediction)[1] < speeds(prediction)[2] < speeds(prediction)[4] < speeds(prediction)[8]
    assert gains(prediction)["2x GPUs"] > 1.5
    assert gains(prediction)["half the GPUs"] < 0.7


def test_mnist_is_fastest_on_one_device() -> None:
    prediction = prediction_of("mnist-cnn", "rtx2080ti:8", "dp", batch=8, global_batch=64)
    scaling = prediction.parallelism.scaling
    assert scaling is not None
    assert scaling.best == scaling.knee == 1
    assert scaling.is_batch_fixed
    assert [point.devices for point in scaling.points] == [1, 2, 4, 8]
    falling = [point.samples_per_second for point in scaling.points]
    assert falling == sorted(falling, reverse=True)
    assert {point.global_batch for point in scaling.points} == {64}


def test_every_change_is_listed_with_its_gain() -> None:
    prediction = prediction_of("voice-linear", "gtx1080ti:4")
    assert set(gains(prediction)) == {
        "2x GPUs", "half the GPUs", "2x batch", "accumulate 2 batches",
        "NVLink (nvlink2:6) instead of pcie3-x16", "2x links",
    }  # fmt: skip
    now = prediction.throughput.samples_per_second
    for advice in prediction.bottleneck.advice:
        assert advice.gain is not None
        assert advice.samples_per_second == pytest.approx(advice.gain * now)
        assert advice.step_seconds is not None


def test_faster_links_never_hurt_and_larger_batches_hide_them() -> None:
    gain = gains(prediction_of("voice-linear", "gtx1080ti:4"))
    assert gain["2x links"] > 1
    assert gain["2x batch"] > 1.5
    assert gain["accumulate 2 batches"] > 1.5


def test_half_precision_is_offered_where_the_device_has_it() -> None:
    assert "mixed precision (fp16)" in gains(prediction_of("voice-conv", "t4:2"))
    without = gains(prediction_of("voice-linear", "gtx1080ti:4"))
    assert not any("precision" in change for change in without)


def test_the_present_number_of_devices_is_on_the_curve() -> None:
    prediction = prediction_of("voice-linear", "gtx1080ti:6")
    assert set(speeds(prediction)) >= {1, 2, 4, 6, 8}
    assert speeds(prediction)[6] == pytest.approx(prediction.throughput.samples_per_second)


def test_efficiency_is_speed_per_device_against_one() -> None:
    scaling = prediction_of("voice-conv", "gtx1080ti:4", "dp", batch=200).parallelism.scaling
    assert scaling is not None
    one = scaling.points[0].samples_per_second
    for point in scaling.points:
        assert point.efficiency == pytest.approx(point.samples_per_second / point.devices / one)
        assert 0 <= point.exposed_share < 1


def test_links_given_by_name_stay_when_the_hardware_grows() -> None:
    slow, fast = (prediction_of("voice-linear", "t4:2", links=links) for links in ("pcie3-x8", "pcie3-x16"))
    assert speeds(slow)[4] < speeds(fast)[4]


def test_devices_wait_for_slow_disks() -> None:
    prediction = prediction_of("mnist-cnn", "t4:2", dataset="imagenet-jpeg")
    assert prediction.bottleneck.kind is Limit.INPUT
    assert "devices wait for samples: " in prediction.bottleneck.verdict


def test_a_step_that_does_not_fit_is_answered_with_layouts_that_do() -> None:
    """Four replicas of the voice model need 1.8 GB each; divided, it needs less."""
    small = with_memory("gtx1080ti:4", 1.7e9)
    prediction = predicted(workload("voice-linear", batch=20), small, advice=True)
    assert prediction.bottleneck.kind is Limit.MEMORY
    assert not prediction.memory.fits
    assert "on the fullest device" in prediction.bottleneck.verdict
    fitting = [remedy for remedy in prediction.memory.advice if remedy.fits]
    assert fitting
    assert any(remedy.change.startswith("strategy ") for remedy in fitting)
    assert all(remedy.bytes < prediction.memory.bytes.p50 for remedy in fitting)


def test_stages_are_named_and_the_bubble_is_a_part() -> None:
    prediction = prediction_of("resnet18", "a100-sxm-80gb:4", "pp=4", batch=8, micro_batches=4)
    report = prediction.parallelism
    assert len(report.stages) == 4
    assert report.bubble_seconds > 0
    assert any(part.name == "pipeline bubble" for part in prediction.step.parts)
    assert prediction.memory.largest_batch >= 8


def test_nvlink_of_the_same_generation_is_offered() -> None:
    link = fast_link(hardware("a100-pcie-40gb:4"))
    assert link is not None
    assert link.startswith("nvswitch2")


@pytest.mark.parametrize("on", ["mi300x:8", "mi250x:8"])
def test_nvlink_is_not_offered_to_devices_of_another_maker(on: str) -> None:
    """They are joined by xGMI already, and NVLink joins devices of NVIDIA only."""
    changes = [each.change for each in prediction_of("resnet18", on, batch=64).bottleneck.advice]
    assert "2x links" in changes
    assert not [change for change in changes if "NVLink" in change]
    link = fast_link(hardware(on))
    assert link is None or link.startswith("xgmi")


def test_a_model_too_large_for_everything_is_answered_with_what_would_help() -> None:
    answer = predict(scenario(workload("mnist-cnn", batch=64), with_memory("t4:2", 1e9), strategy="auto"))
    assert isinstance(answer, Infeasible)
    assert re.search(r"leanest of \d+ layouts .*use more devices, or devices with at least", str(answer))


def test_the_alternative_to_too_few_devices_is_the_next_number_that_fits() -> None:
    job = workload("gpt2", batch=1, seq_len=128)
    answer = predict(scenario(job, with_memory("t4:2", 2.5e9), strategy="auto"))
    assert isinstance(answer, Infeasible)
    form = r"use (t4:\d+) with strategy (\S+), micro_batches (\d+)(, checkpoint_activations)?"
    named = re.fullmatch(form, answer.alternative)
    assert named
    job = workload("gpt2", batch=1, seq_len=128, checkpoint_activations=bool(named[4]))
    on = with_memory(named[1], 2.5e9)
    prediction = predict(scenario(job, on, strategy=named[2], micro_batches=int(named[3])))
    assert isinstance(prediction, Prediction)
    assert prediction.memory.fits
