"""The loop of a campaign with a runner that does not train: resuming, failures, the lock, the forecast."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.measuring.campaigns.campaign import Campaign, ModelEntry
from foretrain.measuring.campaigns.running import CampaignProgress, Forecast, campaign_lock, run_campaign
from foretrain.measuring.campaigns.trials import Trial, TrialOutcome, TrialRunner, trials_of
from foretrain.store import RunQuery, open_store
from foretrain.store.database import Store
from foretrain.store.runs import Environment, PredictionMade, Status, WorkerSteps

CAMPAIGN = Campaign(name="fake", models=(ModelEntry(model="mnist-cnn"),), batch=(1, 2, 4, 8), steps=10)


class Machine(TrialRunner):
    """Takes a tenth of a second per sample; a batch of `breaking` ends the campaign as Ctrl-C does."""

    def __init__(self, breaking: int | None = None, slots: int = 1) -> None:
        self.breaking = breaking
        self.slots = slots
        self.ran: list[Trial] = []

    def close(self, *, failed: bool) -> None:
        self.failed = failed

    def run(self, trial: Trial) -> TrialOutcome:
        if trial.point["batch"] == self.breaking:
            raise KeyboardInterrupt
        self.ran.append(trial)
        seconds = np.full(10, 0.1 * trial.point["batch"])
        steps = (WorkerSteps(worker=0, ends=np.cumsum(seconds), seconds=seconds),)
        is_large = trial.point["batch"] == 8
        return TrialOutcome(
            status=Status.OUT_OF_MEMORY if is_large else Status.COMPLETED,
            started_at=datetime.now(UTC),
            seconds=1.0,
            environment=Environment(device="here", device_name="fake"),
            steps=steps,
            message="too large" if is_large else "",
        )


def predict(setting: dict[str, object]) -> PredictionMade:
    seconds = 0.2 * float(str(setting["batch"]))
    return PredictionMade(made_at=datetime.now(UTC), version="0", knowledge="calibrated",
                          p10_seconds=seconds / 2, p50_seconds=seconds, p90_seconds=seconds * 2)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "runs.sqlite")) as opened:
        yield opened


def test_every_trial_is_predicted_run_and_stored(store: Store) -> None:
    machine = Machine()
    result = run_campaign(CAMPAIGN, store, lambda: machine, predict)
    assert [trial.key for trial in machine.ran] == [trial.key for trial in trials_of(CAMPAIGN)]
    assert (result.trials, result.stored_before, result.left) == (4, 0, 0)
    assert (result.count(Status.COMPLETED), result.count(Status.OUT_OF_MEMORY)) == (3, 1)
    runs = {run.setting["batch"]: run for run in store.runs(RunQuery(campaign="fake"), with_series=True)}
    for batch in (1, 2, 4):
        run = runs[batch]
        assert run.summary is not None
        assert run.summary.seconds == pytest.approx(0.1 * batch)
        assert run.prediction is not None
        assert run.prediction.p50_seconds == pytest.approx(0.2 * batch)
        assert run.prediction.made_at < run.started_at
        assert run.provenance == "campaign fake"
        assert len(run.steps[0].seconds) == 10
    assert (runs[8].status, runs[8].message) == (Status.OUT_OF_MEMORY, "too large")


def test_an_interrupted_campaign_does_the_rest(store: Store) -> None:
    order = [trial.point["batch"] for trial in trials_of(CAMPAIGN)]
    with pytest.raises(KeyboardInterrupt):
        run_campaign(CAMPAIGN, store, lambda: Machine(breaking=order[2]), predict)
    assert len(store.trials("fake")) == 2
    machine = Machine()
    result = run_campaign(CAMPAIGN, store, lambda: machine, predict)
    assert [trial.point["batch"] for trial in machine.ran] == order[2:]
    assert (result.stored_before, len(result.runs), result.left) == (2, 2, 0)
    again = run_campaign(CAMPAIGN, store, lambda: pytest.fail("nothing is left to run"), predict)
    assert again.runs == ()


def test_a_limit_stops_and_several_run_at_once(store: Store) -> None:
    result = run_campaign(CAMPAIGN, store, Machine, predict, limit=1)
    assert (len(result.runs), result.left) == (1, 3)
    result = run_campaign(CAMPAIGN, store, lambda: Machine(slots=3), predict)
    assert (result.stored_before, len(result.runs), result.left) == (1, 3, 0)
    assert len(store.trials("fake")) == 4


def test_asynchronous_workers_count_per_update(store: Store) -> None:
    campaign = Campaign(name="async", models=(ModelEntry(model="mnist-cnn"),), batch=(4,), workers=(2,),
                        strategy=("ps-async",))  # fmt: skip
    (run,) = run_campaign(campaign, store, Machine, lambda _: None).runs
    assert run.summary is not None
    assert run.summary.seconds == pytest.approx(0.2)
    assert run.prediction is None


def test_the_forecast_is_predicted_steps_and_the_overhead_so_far(store: Store) -> None:
    reported: list[CampaignProgress] = []
    run_campaign(CAMPAIGN, store, Machine, predict, reported.append)
    starting = next(progress for progress in reported if progress.doing == "starting")
    # 10 steps of 0.2, 0.4, 0.8 and 1.6 s, and an assumed second of overhead for each
    assert starting.seconds_left == pytest.approx(30 + 4)
    assert (reported[-1].done, reported[-1].total, reported[-1].seconds_left) == (4, 4, 0)


def test_the_forecast_learns_the_overhead_and_stands_in_for_the_unpredicted() -> None:
    trials = trials_of(CAMPAIGN)
    forecast = Forecast(predict)
    assert forecast.seconds_left(trials) == pytest.approx(4 * (2.0 + 1.0))
    forecast.prediction(trials[0])
    trained = forecast.training_seconds(trials[0])
    assert trained is not None
    assert trained == pytest.approx(10 * 0.2 * trials[0].point["batch"])
    forecast.learn(trials[0], trained + 3.0)
    assert forecast.seconds_left(trials) == pytest.approx(4 * (trained + 3.0))
    assert forecast.seconds_left(trials, slots=2) == pytest.approx(2 * (trained + 3.0))
    assert forecast.seconds_left(()) == 0.0


HOLDER = """
import sys, time
from foretrain.measuring.campaigns.running import campaign_lock
with campaign_lock("fake", "somewhere"):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_one_campaign_of_a_name_at_a_time_and_a_dead_one_lets_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, env=dict(os.environ))
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        with (
            pytest.raises(InvalidRequest, match=f"running on this store already .process {process.pid}"),
            campaign_lock("fake", "somewhere"),
        ):
            pass
        with campaign_lock("fake", "elsewhere"), campaign_lock("another", "somewhere"):
            pass
        process.kill()
        process.wait()
        with campaign_lock("fake", "somewhere"):
            pass
