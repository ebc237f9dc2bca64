"""What sets the pace, for steps whose times are given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.small_models import graph
from tests.support.step_models import FixedSteps

from foretrain.facts.devices import device
from foretrain.prediction.advice.bottleneck import Bottleneck, Limit, bottleneck
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.timing import time_step
from foretrain.units import GIB

T4 = device("t4")
STEP = replace(graph("conv"), samples=100)


def found(
    model: FixedSteps, options: InputOptions | None = None, needed: float = GIB, fits: bool = True
) -> Bottleneck:
    timing = time_step(STEP, T4, model, options or InputOptions())
    return bottleneck(timing, needed, 16 * GIB, fits, ())


def test_what_does_not_fit_is_stopped_by_memory_whatever_else() -> None:
    hard = found(FixedSteps(), InputOptions("imagenet", "hdd"), needed=20 * GIB, fits=False)
    assert hard.kind is Limit.MEMORY
    assert hard.verdict == "the step needs 20.0 GiB of memory and the device has 16.0 GiB"


def test_slow_samples_set_the_pace() -> None:
    slow = found(FixedSteps(0.1), InputOptions("imagenet", "hdd"))
    assert slow.kind is Limit.INPUT
    assert "reading samples takes 6.3 times as long" in slow.verdict  # 100/170 + 0.043 = 0.631 s
    assert found(FixedSteps(0.7), InputOptions("imagenet", "hdd")).kind is Limit.GPU


def test_a_slow_host_sets_the_pace() -> None:
    launch = found(FixedSteps(device_seconds=0.25, waiting_seconds=0.75))
    assert launch.kind is Limit.LAUNCH
    assert "idle 75% of the step" in launch.verdict


@pytest.mark.parametrize(("share", "words"), [(0.8, "its compute: 80%"), (0.3, "its memory bandwidth: 70%")])
def test_the_device_sets_the_pace_by_what_takes_most_of_its_time(share: float, words: str) -> None:
    gpu = found(FixedSteps(arithmetic_share=share))
    assert gpu.kind is Limit.GPU
    assert words in gpu.verdict
    assert "the largest part is forward linear (100%)" in gpu.verdict
