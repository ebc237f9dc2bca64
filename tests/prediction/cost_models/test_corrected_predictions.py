"""Predictions in the light of a user's own timings."""

from __future__ import annotations

import pytest

from foretrain.facts.hardware import hardware
from foretrain.prediction.answer import Prediction
from foretrain.prediction.cost_models.user_timings import Configuration, MeasuredStep, remember
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.predict import predict
from foretrain.workloads.requests import WorkloadRequest, workload_of

MODEL = "cifar-resnet20"


def told(batch: int = 64, model: str = MODEL) -> Prediction:
    """A prediction without advice."""
    return predict(workload_of(WorkloadRequest(model, batch=batch)), hardware("t4"), with_advice=False)


def test_a_timed_step_is_measured_and_others_of_the_model_follow() -> None:
    """Steps that took twice as long as predicted double the prediction at another batch size."""
    before = told(128)
    assert before.step is not None
    assert before.knowledge is not Knowledge.MEASURED
    steps = []
    for batch in (32, 64):
        guess = told(batch).step
        assert guess is not None
        configuration = Configuration(MODEL, "t4", batch)
        steps.append(MeasuredStep(configuration, 2 * guess.seconds.p50, guess.seconds.p50))
    remember(steps)
    after = told(128)
    assert after.step is not None
    assert after.knowledge is Knowledge.MEASURED
    assert after.step.seconds.p50 == pytest.approx(2 * before.step.seconds.p50)
    assert sum(part.seconds for part in after.step.parts) == pytest.approx(after.step.seconds.p50)
    assert any("your own timings" in note for note in after.notes)


def test_a_model_timed_elsewhere_is_corrected_but_not_measured() -> None:
    """Part of a model's error carries over to another GPU."""
    before = told()
    assert before.step is not None
    remember([MeasuredStep(Configuration(MODEL, "v100-sxm2-16gb", 64), 2.0, 1.0)])
    after = told()
    assert after.step is not None
    assert after.knowledge is before.knowledge
    assert before.step.seconds.p50 < after.step.seconds.p50 < 2 * before.step.seconds.p50
    assert any("on other devices" in note for note in after.notes)


def test_without_timings_nothing_changes() -> None:
    """No note, no correction."""
    assert told().notes == ()
