"""How long the rest of a campaign will take, from foretrain's own predictions of its trials.

    seconds left = sum over trials of (training seconds + overhead)

A trial of `steps` steps trains for steps x predicted step; one of `seconds` for that long, or for the fewest
steps a trial may have. The overhead is the mean of what trials took so far beyond that. A look ahead predicts
trials in the order they will run for a limited time; the others count as their mean.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from foretrain.measuring.campaigns.trials import Trial
from foretrain.store.runs import PredictionMade

Predict = Callable[[dict[str, Any]], PredictionMade | None]

LOOK_AHEAD_SECONDS = 20.0
_FEWEST_STEPS = 5
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
