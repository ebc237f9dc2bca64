"""Run a campaign: enumerate its trials, skip those stored, predict each, run it, store it.

Every trial is stored in one transaction when it ends. A campaign that was killed at any moment loses at most
the trials under way, and run again it does the rest: no trial is stored twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from foretrain.measuring.campaigns.campaign import Campaign
from foretrain.measuring.campaigns.forecast import LOOK_AHEAD_SECONDS, Forecast, Predict
from foretrain.measuring.campaigns.lock import campaign_lock
from foretrain.measuring.campaigns.outcome import Outcome, Runner, run_of
from foretrain.measuring.campaigns.trials import Trial, remaining, trials_of
from foretrain.store.runs import Run, Status

if TYPE_CHECKING:
    from foretrain.store.database import Store


@dataclass(frozen=True)
class Progress:
    """Where a campaign stands; `seconds_left` is None before the first forecast."""

    done: int
    total: int
    doing: str
    seconds_left: float | None = None


Report = Callable[[Progress], None]


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
    runner: Callable[[], Runner],
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
            report(Progress(before + len(runs), before + len(chosen), doing, left))

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


_Ended = tuple[Trial, Outcome, float]


def _outcomes(
    runner: Runner, trials: Sequence[Trial], forecast: Forecast, stand: Callable[[str], None]
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
    runner: Runner, trials: Sequence[Trial], forecast: Forecast, stand: Callable[[str], None]
) -> Iterator[_Ended]:
    """As many at once as the runner has slots."""
    waiting = list(reversed(trials))
    running: dict[Future[Outcome], tuple[Trial, float]] = {}
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
