"""Predictions corrected by a user's own timings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.scenarios import predicted, workload

from foretrain.facts.devices import device
from foretrain.prediction.answer import Prediction
from foretrain.prediction.corrections.timings import (
    MeasuredStep,
    TimedConfiguration,
    measured_step,
    priced_error,
    remember,
)
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.workloads.workload import graph_at

MODEL = "cifar-resnet20"


def prediction_of(batch: int = 64, model: str = MODEL) -> Prediction:
    return predicted(workload(model, batch=batch), "t4")


def timing(batch: int, measured: float, seconds: float, on: str = "t4") -> MeasuredStep:
    """A timing of the model as `calibrate` keeps it, with other seconds predicted."""
    priced = OperatorCostModel().price(graph_at(workload(MODEL, batch=batch), batch), device(on))
    step = measured_step(
        TimedConfiguration(MODEL, on, batch), measured, priced_error(MODEL, device(on), priced)
    )
    return replace(step, predicted_seconds=seconds)


def test_a_timed_step_is_measured_and_others_of_the_model_follow() -> None:
    """Steps that took twice as long as predicted raise the prediction at another batch size."""
    before = prediction_of(128)
    assert before.knowledge is not Knowledge.MEASURED
    steps = []
    for batch in (32, 64):
        seconds = prediction_of(batch).step.seconds.p50
        steps.append(timing(batch, 2 * seconds, seconds))
    remember(steps)
    after = prediction_of(128)
    assert after.knowledge is Knowledge.MEASURED
    assert 1.4 < after.step.seconds.p50 / before.step.seconds.p50 <= 2  # shrunk: two timings are not certain
    assert sum(part.seconds for part in after.step.parts) == pytest.approx(after.step.seconds.p50)
    assert any("your own timings" in note for note in after.notes)


def test_a_model_timed_on_another_device_is_corrected_but_not_measured() -> None:
    """Part of a model's error carries over to another GPU."""
    before = prediction_of()
    remember([timing(64, 2.0, 1.0, "v100-sxm2-16gb")])
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
    remember([timing(64, 3.0 * seconds, seconds)])
    alone = prediction_of(64).step.seconds
    assert alone.p10 <= 3.0 * seconds <= alone.p90
    remember([timing(32, 1.1 * other, other)])
    both = prediction_of(64).step.seconds
    assert both.p50 == pytest.approx(3.0 * seconds)
    assert both.p10 <= 3.0 * seconds <= both.p90


def test_one_timing_far_off_moves_no_other_device_far() -> None:
    before = prediction_of().step.seconds.p50
    remember([timing(64, 90.0, 1.0, "v100-sxm2-16gb")])
    assert before <= prediction_of().step.seconds.p50 < 1.6 * before
