"""Predictions corrected by a user's own timings."""

from __future__ import annotations

import pytest
from tests.support.scenarios import predicted, workload

from foretrain.prediction.answer import Prediction
from foretrain.prediction.cost_models.user_timings import Configuration, MeasuredStep, remember
from foretrain.prediction.operators._base import Knowledge

MODEL = "cifar-resnet20"


def prediction_of(batch: int = 64, model: str = MODEL) -> Prediction:
    return predicted(workload(model, batch=batch), "t4")


def test_a_timed_step_is_measured_and_others_of_the_model_follow() -> None:
    """Steps that took twice as long as predicted double the prediction at another batch size."""
    before = prediction_of(128)
    assert before.knowledge is not Knowledge.MEASURED
    steps = []
    for batch in (32, 64):
        seconds = prediction_of(batch).step.seconds.p50
        steps.append(MeasuredStep(Configuration(MODEL, "t4", batch), 2 * seconds, seconds))
    remember(steps)
    after = prediction_of(128)
    assert after.knowledge is Knowledge.MEASURED
    assert after.step.seconds.p50 == pytest.approx(2 * before.step.seconds.p50)
    assert sum(part.seconds for part in after.step.parts) == pytest.approx(after.step.seconds.p50)
    assert any("your own timings" in note for note in after.notes)


def test_a_model_timed_on_another_device_is_corrected_but_not_measured() -> None:
    """Part of a model's error carries over to another GPU."""
    before = prediction_of()
    remember([MeasuredStep(Configuration(MODEL, "v100-sxm2-16gb", 64), 2.0, 1.0)])
    after = prediction_of()
    assert after.knowledge is before.knowledge
    assert before.step.seconds.p50 < after.step.seconds.p50 < 2 * before.step.seconds.p50
    assert any("on other devices" in note for note in after.notes)


def test_without_timings_nothing_changes() -> None:
    """No note, no correction."""
    assert prediction_of().notes == ()


def test_a_step_that_was_timed_contains_its_measurement() -> None:
    """Whatever the ratio, and with other timings of the model that disagree."""
    other = prediction_of(32).step.seconds.p50
    seconds = prediction_of(64).step.seconds.p50
    remember([MeasuredStep(Configuration(MODEL, "t4", 64), 3.0 * seconds, seconds)])
    alone = prediction_of(64).step.seconds
    assert alone.p10 <= 3.0 * seconds <= alone.p90
    remember([MeasuredStep(Configuration(MODEL, "t4", 32), 1.1 * other, other)])
    both = prediction_of(64).step.seconds
    assert both.p50 == pytest.approx(3.0 * seconds)
    assert both.p10 <= 3.0 * seconds <= both.p90


def test_one_timing_far_off_moves_no_other_device_far() -> None:
    before = prediction_of().step.seconds.p50
    remember([MeasuredStep(Configuration(MODEL, "v100-sxm2-16gb", 64), 90.0, 1.0)])
    assert before < prediction_of().step.seconds.p50 < 1.6 * before
