"""What a user's timings say: of the same step, of the same model elsewhere, of the same device."""

from __future__ import annotations

import json
import math

import pytest

from foretrain.errors import InvalidData
from foretrain.estimates import Estimate, Part
from foretrain.prediction.cost_models.user_timings import (
    Configuration,
    MeasuredStep,
    VarianceComponents,
    corrected,
    correction,
    measured_steps,
    measurements_file,
    remember,
)
from foretrain.prediction.operators._base import Knowledge

ONES = VarianceComponents(device=1.0, model=1.0, interaction=0.0, noise=0.0)
ESTIMATE = Estimate("s", (Part("compute", 3.0, "a", 0.6, 0.9), Part("wait", 1.0, "b", 0.2, 0.3)))


def timed(model: str, device: str, ratio: float, batch: int = 8) -> MeasuredStep:
    """A step that took `ratio` times what was predicted."""
    return MeasuredStep(Configuration(model, device, batch), ratio, 1.0)


def test_nothing_timed_changes_nothing() -> None:
    assert correction("a", "t4", [], ONES) is None
    assert correction("a", "t4", [timed("b", "v100", 2.0)], ONES) is None
    assert corrected(ESTIMATE, "a", "t4", [], ONES) == (ESTIMATE, None, "")


def test_the_same_model_on_the_same_device_is_taken_at_its_word() -> None:
    found = correction("a", "t4", [timed("a", "t4", 2.0)], ONES)
    assert found is not None and found.is_measured
    assert found.factor == pytest.approx(2.0)
    assert found.narrowing == pytest.approx(0.0, abs=1e-6)


def test_half_of_a_models_error_is_carried_to_another_device() -> None:
    # cov = 1 of var 2: the conditional mean is half the log ratio, the variance 2 - 1/2
    found = correction("a", "v100", [timed("a", "t4", 4.0)], ONES)
    assert found is not None and not found.is_measured
    assert found.factor == pytest.approx(2.0)
    assert found.narrowing == pytest.approx(math.sqrt(1.5 / 2))


def test_other_models_on_the_device_count_by_their_number() -> None:
    # n models with ratio e: the mean of n values of var 2 and cov 1 has var 1 + 1/n, and cov 1 with a_device
    for count in (1, 4, 100):
        found = correction("a", "t4", [timed(f"m{i}", "t4", math.e) for i in range(count)], ONES)
        assert found is not None
        assert math.log(found.factor) == pytest.approx(1 / (1 + 1 / count))


def test_without_variances_only_the_same_step_speaks() -> None:
    assert correction("a", "v100", [timed("a", "t4", 4.0)], None) is None
    found = correction("a", "t4", [timed("a", "t4", 2.0), timed("a", "t4", 8.0, batch=16)], None)
    assert found is not None
    assert found.factor == pytest.approx(4.0)  # the geometric mean


def test_the_interval_is_that_of_the_ratios_seen() -> None:
    ratios = [timed("a", "t4", ratio, batch) for ratio, batch in ((1.49, 1), (1.5, 2), (1.51, 3))]
    found, knowledge, basis = corrected(ESTIMATE, "a", "t4", ratios, None)
    assert found.value == pytest.approx(6.0, rel=1e-3)
    assert knowledge is Knowledge.MEASURED
    assert basis == "your own timings: 3 of this model on this device"
    spread = 0.01 / 1.5 * math.sqrt(1 + 1 / 3)
    width = (found.quantiles.p90 - found.quantiles.p10) / 2
    assert width == pytest.approx(6.0 * 1.2816 * spread, rel=0.02)


def test_the_parts_still_sum_and_the_interval_never_widens() -> None:
    for steps in ([timed("a", "v100", 1.3)], [timed("b", "t4", 0.7)], [timed("a", "t4", 1.1)]):
        found, _, _ = corrected(ESTIMATE, "a", "t4", steps, VarianceComponents(0.02, 0.01, 0.005, 0.01))
        before, after = ESTIMATE.quantiles, found.quantiles
        assert sum(part.value for part in found.parts) == pytest.approx(after.p50)
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
    with pytest.raises(InvalidData, match="mend or remove it"):
        remember([timed("a", "t4", 2.0)])
    assert file.read_text() == content


def test_times_of_nothing_are_refused() -> None:
    remember([timed("a", "t4", 2.0)])
    raw = json.loads(measurements_file().read_text())
    raw["steps"][0]["step_seconds"] = 0
    measurements_file().write_text(json.dumps(raw))
    with pytest.raises(InvalidData, match="takes no time"):
        measured_steps()
