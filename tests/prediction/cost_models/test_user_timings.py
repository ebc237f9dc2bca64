"""Corrections by a user's timings: of the same step, of the same model elsewhere, of the same device."""

from __future__ import annotations

import json
import math

import pytest
from tests.support.small_models import graph
from tests.support.step_models import FixedSteps

from foretrain.errors import InvalidData
from foretrain.facts.devices import device
from foretrain.prediction.cost_models.priced_step import StepEstimate, step_estimate
from foretrain.prediction.cost_models.step_models import CorrectedCostModel, corrected
from foretrain.prediction.cost_models.user_timings import (
    Configuration,
    MeasuredStep,
    VarianceComponents,
    correction,
    measured_steps,
    measurements_file,
    remember,
)
from foretrain.prediction.operators._base import Knowledge

ONES = VarianceComponents(device=1.0, model=1.0, interaction=0.0, noise=0.0)
STEP = FixedSteps(device_seconds=3.0, waiting_seconds=1.0)
T4 = device("t4")


def timed(model: str, device: str, ratio: float, batch: int = 8) -> MeasuredStep:
    """A step that took `ratio` times what was predicted."""
    return MeasuredStep(Configuration(model, device, batch), ratio, 1.0)


def corrected_estimate(steps: list[MeasuredStep], components: VarianceComponents | None) -> StepEstimate:
    """A step of 4 seconds of model a on a T4, corrected by timings."""
    by = correction("a", "t4", steps, components)
    assert by is not None
    return step_estimate(corrected(STEP.priced(graph("conv"), T4), by))


def test_nothing_timed_changes_nothing() -> None:
    assert correction("a", "t4", [], ONES) is None
    assert correction("a", "t4", [timed("b", "v100", 2.0)], ONES) is None
    assert CorrectedCostModel(STEP, "a").estimate(graph("conv"), T4) == STEP.estimate(graph("conv"), T4)


def test_a_timing_of_the_same_model_on_the_same_device_decides() -> None:
    change = correction("a", "t4", [timed("a", "t4", 2.0)], ONES)
    assert change is not None and change.is_measured
    assert change.factor == pytest.approx(2.0)
    assert change.narrowing == pytest.approx(0.0, abs=1e-6)


def test_half_of_a_models_error_is_carried_to_another_device() -> None:
    # cov = 1 of var 2: the conditional mean is half the log ratio, the variance 2 - 1/2
    change = correction("a", "v100", [timed("a", "t4", 4.0)], ONES)
    assert change is not None and not change.is_measured
    assert change.factor == pytest.approx(2.0)
    assert change.narrowing == pytest.approx(math.sqrt(1.5 / 2))


def test_other_models_on_the_device_count_by_their_number() -> None:
    # n models with ratio e: the mean of n values of var 2 and cov 1 has var 1 + 1/n, and cov 1 with a_device
    for count in (1, 4, 100):
        change = correction("a", "t4", [timed(f"m{i}", "t4", math.e) for i in range(count)], ONES)
        assert change is not None
        assert math.log(change.factor) == pytest.approx(1 / (1 + 1 / count))


def test_without_variances_only_timings_of_the_same_step_count() -> None:
    assert correction("a", "v100", [timed("a", "t4", 4.0)], None) is None
    change = correction("a", "t4", [timed("a", "t4", 2.0), timed("a", "t4", 8.0, batch=16)], None)
    assert change is not None
    assert change.factor == pytest.approx(4.0)  # the geometric mean


def test_the_interval_is_that_of_the_ratios_seen() -> None:
    ratios = [timed("a", "t4", ratio, batch) for ratio, batch in ((1.49, 1), (1.5, 2), (1.51, 3))]
    step = corrected_estimate(ratios, None)
    assert step.seconds == pytest.approx(6.0, rel=1e-3)
    assert step.knowledge is Knowledge.MEASURED
    assert step.basis == "your own timings: 3 of this model on this device"
    spread = 0.01 / 1.5 * math.sqrt(1 + 1 / 3)
    quantiles = step.estimate.quantiles
    width = (quantiles.p90 - quantiles.p10) / 2
    assert width == pytest.approx(6.0 * 1.2816 * spread, rel=0.02)


def test_the_parts_still_sum_and_the_interval_never_widens() -> None:
    for steps in ([timed("a", "v100", 1.3)], [timed("b", "t4", 0.7)], [timed("a", "t4", 1.1)]):
        step = corrected_estimate(steps, VarianceComponents(0.02, 0.01, 0.005, 0.01))
        before, after = STEP.estimate(graph("conv"), T4).estimate.quantiles, step.estimate.quantiles
        assert sum(part.value for part in step.estimate.parts) == pytest.approx(after.p50)
        assert (after.p90 - after.p10) / after.p50 < (before.p90 - before.p10) / before.p50


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
