"""Runs of CPU workers as samples, the calibration they give, and predictions with and without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.support.this_machine import calibrated_machine, run_of

import foretrain as ft
from foretrain.errors import InvalidRequest, MissingData
from foretrain.learning.user_calibration import samples
from foretrain.learning.user_calibration.catalogue import calibration_named, forget
from foretrain.learning.user_calibration.samples import sample_of
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.step.cpu_workers import WorkerConstants, prior, worker_time
from foretrain.progress import no_progress
from foretrain.serving.verbs.calibrating import HALF, RunsLearned, held_out_models, learn_from
from foretrain.store.runs import Run, Status

MODELS = ("mnist-cnn", "voice-conv", "cifar-resnet20", "voice-linear")
SETTINGS: tuple[dict[str, Any], ...] = (
    {"on": "here"},
    {"on": "here:1x2", "strategy": "ddp", "network": "200Mbit/s"},
    {"on": "here:1x2", "strategy": "fsdp", "network": "1Gbit/s"},
    {"on": "here:1x2", "strategy": "ps-sync", "network": "200Mbit/s"},
    {"on": "here:1x2", "strategy": "ps-async", "network": "1Gbit/s"},
)


def true_constants() -> WorkerConstants:
    """A machine that is not the assumed one."""
    known = prior().constants
    return replace(known, convolutions_factor=1.4, streams_factor=1.6, ddp_byte_seconds=5e-9, wire_share=1.2)


def runs_on(constants: WorkerConstants) -> Iterator[Run]:
    """Runs that take what a machine with these constants takes, predicted twice as long before."""
    for model in MODELS:
        for number, setting in enumerate(SETTINGS):
            given = {**setting, "model": model, "batch": 4 + number, "optimizer": "sgd"}
            seconds = worker_time(sample_of(run_of(1.0, **given)).step, constants).seconds
            yield run_of(seconds, predicted_seconds=2 * seconds, **given)


@pytest.fixture(name="runs")
def runs_of_a_campaign(quick_measurement: None, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """On a calibrated machine."""
    del quick_measurement
    calibrated_machine()
    with monkeypatch.context() as patched:  # the steps of 1 s that show what a setting is are none
        patched.setattr(samples, "check_plausible", lambda *_: None)
        return list(runs_on(true_constants()))


def learned(runs: list[Run], held_out: str = "each") -> RunsLearned:
    return learn_from(runs, held_out, no_progress)


def predicted(run: Run, **more: Any) -> Any:
    return ft.predict(**{**run.setting, "advice": False, **more})


def test_other_models_are_predicted_after_calibrating_on_half(runs: list[Run], own_home: Any) -> None:
    del own_home
    answer = learned(runs, HALF)
    ((calibration, fit),) = answer.fits
    assert answer.unused == ()
    assert calibration.name == "workers-here"
    assert fit.held_out_models == ("mnist-cnn", "voice-linear")
    assert fit.held_out is not None
    assert fit.held_out_before is not None
    assert fit.held_out_before.mean == pytest.approx(1.0)
    assert fit.held_out.mean < 0.2  # ten runs of two models are not many
    other = next(run for run in runs if run.setting["model"] == "voice-linear")
    assert other.summary is not None
    answer_now = predicted(other)
    assert answer_now.knowledge is Knowledge.CALIBRATED
    assert answer_now.step.seconds.p50 == pytest.approx(other.summary.seconds, rel=0.25)


def test_a_setting_that_was_run_contains_its_measurement(runs: list[Run]) -> None:
    learned(runs)
    for run in runs:
        assert run.summary is not None
        answer = predicted(run)
        assert answer.step.seconds.p10 <= run.summary.seconds <= answer.step.seconds.p90
        assert answer.knowledge is Knowledge.MEASURED
        assert sum(part.seconds for part in answer.step.parts) == pytest.approx(answer.step.seconds.p50)


def test_forgetting_restores_the_predictions_exactly(runs: list[Run]) -> None:
    before = [predicted(run).to_dict() for run in runs[:5]]
    learned(runs)
    assert [predicted(run).to_dict() for run in runs[:5]] != before
    assert calibration_named("workers-here").fitted_on["runs"] == len(runs)
    forget("workers-here")
    assert [predicted(run).to_dict() for run in runs[:5]] == before


def test_other_strategies_and_cost_models_are_not_touched(runs: list[Run]) -> None:
    run = runs[1]
    before = [predicted(run, strategy="zero1").to_dict(), predicted(run, cost_model="roofline").to_dict()]
    learned(runs)
    after = [predicted(run, strategy="zero1").to_dict(), predicted(run, cost_model="roofline").to_dict()]
    assert after == before


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"on": None}, "has no on"),
        ({"model": None}, "has no model"),
        ({"on": "t4"}, "it ran on t4"),
        ({"strategy": "zero1"}, "strategy zero1 is not one"),
        ({"lora": "r=4"}, "has lora, which fits do not consider"),
        ({"model": "no-such-model"}, "no model 'no-such-model'"),
    ],
)
def test_runs_that_are_no_samples_say_why(runs: list[Run], changes: dict[str, Any], sentence: str) -> None:
    setting = {**runs[1].setting, **changes}
    answer = learned([*runs, run_of(0.1, **setting)])
    assert [sentence in unused.reason for unused in answer.unused] == [True]


def test_failed_runs_and_wrong_units_are_not_used(runs: list[Run]) -> None:
    failed = run_of(1.0, Status.FAILED, **runs[0].setting)
    assert runs[0].summary is not None
    in_milliseconds = run_of(1000 * runs[0].summary.seconds, **runs[0].setting)
    reasons = [unused.reason for unused in learned([*runs, failed, in_milliseconds]).unused]
    assert "the run is failed" in reasons[0]
    assert "it looks like milliseconds" in reasons[1]


def test_no_runs_and_unknown_held_out_models(runs: list[Run]) -> None:
    with pytest.raises(MissingData, match="no completed run matches"):
        learned([])
    few = [sample_of(run) for run in runs[:3]]
    assert held_out_models(few, "each") == frozenset()
    with pytest.raises(InvalidRequest, match="names resnet50, of which there are no runs"):
        held_out_models(few, "resnet50")
