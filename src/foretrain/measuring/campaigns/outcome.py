"""What came out of one trial, and the run that is stored of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import numpy as np

from foretrain.measuring.campaigns.trials import Trial
from foretrain.measuring.watching.summary import summarise
from foretrain.store.runs import (
    Environment,
    PredictionMade,
    Run,
    Series,
    Status,
    StepSummary,
    WorkerSteps,
    new_run_id,
)

_SOURCE = "campaign"


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """How a trial ended and what was measured of it."""

    status: Status
    started_at: datetime
    seconds: float
    environment: Environment
    steps: tuple[WorkerSteps, ...] = ()
    series: tuple[Series, ...] = ()
    message: str = ""
    exit_code: int | None = None
    summary: StepSummary | None = None


class Runner(ABC):
    """Runs trials somewhere, `slots` of them at once, each in a thread of its own."""

    slots: int = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=kind is not None)

    @abstractmethod
    def close(self, *, failed: bool) -> None:
        """End what was started; at once where the campaign failed."""

    @abstractmethod
    def run(self, trial: Trial) -> Outcome:
        """Run one trial; a trial that fails is an outcome too, not an exception."""


def run_of(trial: Trial, outcome: Outcome, prediction: PredictionMade | None) -> Run:
    """The run to store."""
    summary = outcome.summary
    if summary is None and outcome.status is Status.COMPLETED:
        summary = _summary(trial, outcome.steps)
    return Run(
        id=new_run_id(),
        started_at=outcome.started_at,
        seconds=outcome.seconds,
        status=outcome.status,
        exit_code=outcome.exit_code,
        command=trial.words,
        setting=trial.setting,
        environment=outcome.environment,
        provenance=f"campaign {trial.campaign}",
        summary=summary,
        prediction=prediction,
        steps=outcome.steps,
        series=outcome.series,
        message=outcome.message,
        campaign=trial.campaign,
        trial=trial.key,
    )


def _summary(trial: Trial, steps: Sequence[WorkerSteps]) -> StepSummary | None:
    """Seconds per update of the parameters; asynchronous workers update them one by one."""
    summary = summarise(steps, _SOURCE)
    if summary is None or trial.strategy != "ps-async":
        return summary
    return replace(
        summary,
        seconds=summary.seconds / trial.workers,
        p10_seconds=summary.p10_seconds / trial.workers,
        p90_seconds=summary.p90_seconds / trial.workers,
        source=f"{_SOURCE}: step of a worker / {trial.workers} workers",
    )


def worker_steps(answers: Sequence[dict[str, Any]], origin: float) -> tuple[WorkerSteps, ...]:
    """The steps that workers reported on the monotonic clock, as seconds since `origin`."""
    return tuple(
        WorkerSteps(
            worker=rank,
            ends=np.array(answer["ends"]) - origin,
            seconds=np.array(answer["ends"]) - np.array(answer["starts"]),
        )
        for rank, answer in enumerate(answers)
    )
