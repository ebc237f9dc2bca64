"""What limits a step whose times are given."""

from __future__ import annotations

import pytest
from tests.support.scenarios import NO_INPUT, context_on, workload
from tests.support.smaller_devices import with_memory
from tests.support.step_models import FixedSteps

from foretrain.facts.hardware import Hardware
from foretrain.prediction.advice.bottleneck import Bottleneck, Limit, find_bottleneck
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import evaluate
from foretrain.units import format_bytes

IMAGES = workload("mnist-cnn", batch=100)
SLOW_DISK = InputOptions(dataset="imagenet", storage="hdd")


def bottleneck_of(
    model: FixedSteps, options: InputOptions = NO_INPUT, on: str | Hardware = "t4"
) -> Bottleneck:
    context = context_on(IMAGES, on, model, options)
    return find_bottleneck(evaluate(context, configure(context, Parallelism())))


def test_a_step_that_does_not_fit_is_limited_by_memory_whatever_else() -> None:
    small = with_memory("t4", 1e9)
    limit = bottleneck_of(FixedSteps(), SLOW_DISK, small)
    assert limit.kind is Limit.MEMORY
    context = context_on(IMAGES, small, FixedSteps(), SLOW_DISK)
    memory = evaluate(context, configure(context, Parallelism())).memory
    needed, capacity = format_bytes(memory.bytes), format_bytes(memory.capacity_bytes)
    assert memory.bytes > 1e9 > memory.capacity_bytes
    assert limit.verdict == f"the step needs {needed} of memory, and the device has {capacity}"


def test_slow_samples_limit_a_step() -> None:
    slow = bottleneck_of(FixedSteps(0.1), SLOW_DISK)
    assert slow.kind is Limit.INPUT
    assert "reading samples takes 6.3x as long" in slow.verdict  # 100/170 + 0.043 = 0.631 s
    assert bottleneck_of(FixedSteps(0.7), SLOW_DISK).kind is Limit.GPU


def test_a_slow_host_limits_a_step() -> None:
    launch = bottleneck_of(FixedSteps(device_seconds=0.25, waiting_seconds=0.75))
    assert launch.kind is Limit.LAUNCH
    assert "it idles 75%" in launch.verdict


@pytest.mark.parametrize(
    ("share", "words", "largest"),
    [
        (1.0, "GPU arithmetic throughput (100% of GPU time)", "backward copy (67%)"),
        (0.8, "GPU arithmetic throughput (80% of GPU time)", "backward copy (53%)"),
        (0.3, "GPU memory bandwidth (70% of GPU time)", "backward loss (47%)"),
    ],
)
def test_a_device_limits_a_step_by_what_takes_most_of_its_time(
    share: float, words: str, largest: str
) -> None:
    gpu = bottleneck_of(FixedSteps(arithmetic_share=share))
    assert gpu.kind is Limit.GPU
    assert words in gpu.verdict
    assert f"largest part: {largest}" in gpu.verdict
