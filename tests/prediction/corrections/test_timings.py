"""Corrections by a user's timings: of the same step, of the same model elsewhere, of the same device.

The arithmetic of the model of errors is in `test_error_model.py`.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.support.small_models import graph
from tests.support.step_models import FixedSteps

from foretrain.errors import InvalidData
from foretrain.facts.devices import device
from foretrain.prediction.corrections.apply import CorrectedCostModel, correct_step
from foretrain.prediction.corrections.error_model import StepTraits
from foretrain.prediction.corrections.files import measurements_file
from foretrain.prediction.corrections.timings import (
    Correction,
    MeasuredStep,
    TimedConfiguration,
    corrections,
    measured_step,
    measured_steps,
    priced_error,
    remember,
)
from foretrain.prediction.cost_models import StepEstimate, step_estimate
from foretrain.prediction.operators.pricing import Knowledge

STEP = FixedSteps(device_seconds=3.0, waiting_seconds=1.0)
T4 = device("t4")
PRICED = STEP.price(graph("conv"), T4)
KEPT = measured_step(TimedConfiguration("a", "t4", 8), 1.0, priced_error("a", T4, PRICED))
PRECISION = KEPT.precision


def timed(
    model: str, device: str, ratio: float, batch: int = 8, precision: str = PRECISION, seconds: float = 1.0
) -> MeasuredStep:
    """A step that took `ratio` times what was predicted."""
    return MeasuredStep(
        TimedConfiguration(model, device, batch),
        ratio * seconds,
        seconds,
        precision,
        KEPT.variant,
        KEPT.traits,
    )


def correction_by(*steps: MeasuredStep, model: str = "a", on: str = "t4") -> Correction:
    """The correction of a step of 4 seconds."""
    found = corrections(model, device(on), [PRICED], steps)
    assert found is not None
    return found[0]


def corrected_estimate(*steps: MeasuredStep) -> StepEstimate:
    """A step of 4 seconds of model a on a T4, corrected by timings."""
    return step_estimate(correct_step(PRICED, correction_by(*steps)))


def test_nothing_timed_changes_nothing() -> None:
    assert corrections("a", T4, [PRICED], []) is None
    assert CorrectedCostModel(STEP, "a").estimate(graph("conv"), T4) == STEP.estimate(graph("conv"), T4)


def test_timings_of_a_cpu_say_nothing_about_a_gpu() -> None:
    assert corrections("a", T4, [PRICED], [timed("a", "here", 2.0)]) is None


def test_a_timing_of_the_same_step_decides() -> None:
    change = correction_by(timed("a", "t4", 2.0, seconds=4.0))
    assert change.is_measured
    assert change.factor == pytest.approx(2.0)
    assert change.narrowing < 0.1


def test_the_nearer_the_timed_step_the_more_it_counts() -> None:
    """Another size, another device, another model, both others: each moves less, and none the wrong way."""
    same = correction_by(timed("a", "t4", 2.0, seconds=2.0))
    elsewhere = correction_by(timed("a", "l4", 2.0, seconds=2.0))
    other = correction_by(timed("b", "t4", 2.0, seconds=2.0))
    neither = correction_by(timed("b", "l4", 2.0, seconds=2.0))
    assert 2.0 > same.factor > elsewhere.factor > other.factor >= neither.factor >= 1.0
    assert same.is_measured and not elsewhere.is_measured and not other.is_measured


def test_a_timing_in_another_precision_counts_less() -> None:
    here, other = (
        correction_by(timed("a", "t4", 2.0, seconds=2.0, precision=name)) for name in (PRECISION, "fp8")
    )
    assert here.factor > other.factor > 1.0
    assert here.is_measured and not other.is_measured


def test_a_step_says_what_its_correction_rests_on() -> None:
    steps = [
        timed("a", "t4", 1.5, 1),
        timed("a", "l4", 1.5, 2),
        timed("b", "t4", 1.5, 3),
        timed("b", "l4", 1.5),
    ]
    step = corrected_estimate(*steps)
    assert step.knowledge is Knowledge.MEASURED
    assert step.basis.startswith(
        "your own timings: 1 of this model on this device, 1 of this model on other devices, 1 of other "
        "models on this device, 1 of other models on other devices; they change the time by +"
    )
    assert step.basis.endswith("% trusted")


def test_the_parts_still_sum_and_timings_that_agree_never_widen_the_interval() -> None:
    for steps in ([timed("a", "l4", 1.1)], [timed("b", "t4", 0.9)], [timed("a", "t4", 1.1)]):
        step = corrected_estimate(*steps)
        before, after = STEP.estimate(graph("conv"), T4).estimate.quantiles, step.estimate.quantiles
        assert sum(part.value for part in step.estimate.parts) == pytest.approx(after.p50)
        assert (after.p90 - after.p10) / after.p50 < (before.p90 - before.p10) / before.p50


def test_timings_far_off_widen_the_interval() -> None:
    """A user whose timings are off by three times in both directions has larger errors than usual."""
    ratios = [3.0, 0.3, 3.0, 0.3]
    change = correction_by(*(timed(f"m{place}", "t4", ratio) for place, ratio in enumerate(ratios)))
    assert change.narrowing > 1.0


def test_files_without_traits_are_still_read() -> None:
    file = measurements_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    old = {
        "configuration": {"model": "a", "device": "t4", "batch": 8},
        "step_seconds": 2.0,
        "predicted_seconds": 1.0,
    }
    file.write_text(json.dumps({"format": 1, "steps": [old]}))
    (step,) = measured_steps()
    assert step == replace(timed("a", "t4", 2.0, precision=""), variant="", traits=StepTraits())
    assert correction_by(*measured_steps()).is_measured


def test_steps_are_kept_and_replaced_by_configuration() -> None:
    assert measured_steps() == ()
    remember([timed("a", "t4", 2.0), timed("b", "t4", 3.0)])
    assert len(remember([timed("a", "t4", 5.0)])) == 2
    assert {step.configuration.model: step.step_seconds for step in measured_steps()} == {"a": 5.0, "b": 3.0}


@pytest.mark.parametrize("content", ["{", '{"format": 9, "steps": []}', '{"format": 1, "steps": [{}]}', "[]"])
def test_a_file_that_cannot_be_read_is_left_alone(content: str) -> None:
    file = measurements_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    with pytest.raises(InvalidData, match="fix or remove it"):
        remember([timed("a", "t4", 2.0)])
    assert file.read_text() == content


def test_steps_that_take_no_time_are_refused() -> None:
    remember([timed("a", "t4", 2.0)])
    raw = json.loads(measurements_file().read_text())
    raw["steps"][0]["step_seconds"] = 0
    measurements_file().write_text(json.dumps(raw))
    with pytest.raises(InvalidData, match="the times of a step of a must be above 0"):
        measured_steps()
