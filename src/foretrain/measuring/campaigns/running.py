"""Run a campaign: enumerate its trials, skip those stored, predict each, run it, store it.

Every trial is stored in one transaction when it ends. A campaign that was killed at any moment loses at most
the trials under way, and run again it does the rest: no trial is stored twice.

A lock keeps it to one campaign of a name at a time on one store.

How long the rest will take is forecast from foretrain's own predictions of the trials:

    seconds left = sum over trials of (training seconds + overhead)

A trial of `steps` steps trains for steps x predicted step; one of `seconds` for that long, or for the fewest
steps a trial may have. The overhead is the mean of what trials took so far beyond that. A look ahead predicts
trials in the order they will run for a limited time; the others count as their mean.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from foretrain.facts.user_data import user_data_dir
from foretrain.measuring.campaigns.campaign import Campaign
from foretrain.measuring.campaigns.trials import (
    Trial,
    TrialOutcome,
    TrialRunner,
    remaining,
    run_of,
    trials_of,
)
from foretrain.store.locks import hold
from foretrain.store.runs import PredictionMade, Run, Status

if TYPE_CHECKING:
    from foretrain.store.database import Store

Predict = Callable[[dict[str, Any]], PredictionMade | None]

LOOK_AHEAD_SECONDS = 20.0
"""Predictions before the first trial, for the time left; a long campaign predicts the rest as it goes."""
_FEWEST_STEPS = 5
"""Steps that a trial trains however long they take: fewer are all warm-up."""
_OVERHEAD_SECONDS = 1.0
"""Assumed until a trial has been run."""


class Forecast:
    """Predictions of trials, each made once and before its trial, and the overhead of trials so far."""

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._predictions: dict[str, PredictionMade | None] = {}
        self._overheads: list[float] = []

    def look_ahead(
        self, trials: Sequence[Trial], doing: Callable[[str], None], limit_seconds: float = LOOK_AHEAD_SECONDS
    ) -> None:
        """Predict trials in order until the time is up."""
        start = time.monotonic()
        for trial in trials:
            if time.monotonic() - start > limit_seconds:
                return
            doing(f"predicting {trial.label}")
            self.prediction(trial)

    def prediction(self, trial: Trial) -> PredictionMade | None:
        """What is predicted of a trial; None where it cannot be predicted."""
        if trial.key not in self._predictions:
            self._predictions[trial.key] = self._predict(trial.setting)
        return self._predictions[trial.key]

    def training_seconds(self, trial: Trial) -> float | None:
        """How long a trial trains; None where it has not been predicted."""
        made = self._predictions.get(trial.key)
        if made is None:
            return None
        if trial.steps is not None:
            return min(trial.timeout, trial.steps * made.p50_seconds)
        return min(trial.timeout, max(trial.seconds, _FEWEST_STEPS * made.p50_seconds))

    def learn(self, trial: Trial, seconds: float) -> None:
        """Take note of how long a trial took in all."""
        expected = self.training_seconds(trial)
        self._overheads.append(seconds - (trial.seconds if expected is None else expected))

    def seconds_left(self, trials: Sequence[Trial], slots: int = 1) -> float:
        """For these trials, `slots` of them at once."""
        if not trials:
            return 0.0
        known = [seconds for trial in trials if (seconds := self.training_seconds(trial)) is not None]
        mean = statistics.fmean(known) if known else statistics.fmean(trial.seconds for trial in trials)
        overhead = statistics.fmean(self._overheads) if self._overheads else _OVERHEAD_SECONDS
        total = sum(known) + mean * (len(trials) - len(known)) + overhead * len(trials)
        return max(0.0, total) / slots


@contextmanager
def campaign_lock(campaign: str, store: str) -> Iterator[None]:
    """Hold the lock of a campaign on a store; another process of this machine that holds it is an error."""
    digest = hashlib.sha256(f"{campaign}\0{store}".encode()).hexdigest()[:16]
    with hold(user_data_dir() / "locks" / f"campaign-{digest}.lock", f"the campaign {campaign!r}"):
        yield


@dataclass(frozen=True)
class CampaignProgress:
    """Where a campaign stands; `seconds_left` is None before the first forecast."""

    done: int
    total: int
    doing: str
    seconds_left: float | None = None


Report = Callable[[CampaignProgress], None]


@dataclass(frozen=True)
class CampaignResult:
    """What a campaign did: trials of the file, those stored before, and the runs of this time.

    The runs are without steps and series, which are in the store.
    """

    campaign: str
    trials: int
    stored_before: int
    runs: tuple[Run, ...]

    @property
    def left(self) -> int:
        """Trials that are not stored yet."""
        return self.trials - self.stored_before - len(self.runs)

    def count(self, status: Status) -> int:
        """How many runs of this time ended so."""
        return sum(run.status is status for run in self.runs)


def run_campaign(
    campaign: Campaign,
    store: Store,
    runner: Callable[[], TrialRunner],
    predict: Predict,
    report: Report = lambda _: None,
    limit: int | None = None,
    look_ahead_seconds: float = LOOK_AHEAD_SECONDS,
) -> CampaignResult:
    """Run the trials that are not stored yet, at most `limit` of them."""
    trials = trials_of(campaign)
    with campaign_lock(campaign.name, store.place):
        stored = store.trials(campaign.name)
        pending = remaining(trials, stored)
        before = len(trials) - len(pending)
        chosen = pending[:limit]
        forecast = Forecast(predict)
        runs: list[Run] = []

        def stand(doing: str) -> None:
            left = forecast.seconds_left(chosen[len(runs) :], slots)
            report(CampaignProgress(before + len(runs), before + len(chosen), doing, left))

        slots = 1
        if chosen:
            forecast.look_ahead(chosen, stand, look_ahead_seconds)
            stand("starting")
            with runner() as place:
                slots = place.slots
                for trial, outcome, seconds in _outcomes(place, chosen, forecast, stand):
                    forecast.learn(trial, seconds)
                    run = run_of(trial, outcome, forecast.prediction(trial))
                    store.add(run)
                    runs.append(replace(run, steps=(), series=()))
                    stand(trial.label)
    return CampaignResult(campaign.name, len(trials), before, tuple(runs))


_Ended = tuple[Trial, TrialOutcome, float]


def _outcomes(
    runner: TrialRunner, trials: Sequence[Trial], forecast: Forecast, stand: Callable[[str], None]
) -> Iterator[_Ended]:
    """Each trial with its outcome and how long it took, as they end.

    One at a time in this thread where the runner has one slot: what measures must not be disturbed, and
    workers end with the thread that started them.
    """
    if runner.slots == 1:
        for trial in trials:
            start = time.monotonic()
            forecast.prediction(trial)  # made before the trial
            stand(trial.label)
            yield trial, runner.run(trial), time.monotonic() - start
        return
    yield from _concurrent_outcomes(runner, trials, forecast, stand)


def _concurrent_outcomes(
    runner: TrialRunner, trials: Sequence[Trial], forecast: Forecast, stand: Callable[[str], None]
) -> Iterator[_Ended]:
    """As many at once as the runner has slots."""
    waiting = list(reversed(trials))
    running: dict[Future[TrialOutcome], tuple[Trial, float]] = {}
    pool = ThreadPoolExecutor(runner.slots)
    try:
        while waiting or running:
            while waiting and len(running) < runner.slots:
                trial = waiting.pop()
                forecast.prediction(trial)
                stand(trial.label)
                running[pool.submit(runner.run, trial)] = trial, time.monotonic()
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                trial, start = running.pop(future)
                yield trial, future.result(), time.monotonic() - start
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
