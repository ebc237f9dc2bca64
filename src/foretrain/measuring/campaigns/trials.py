"""The trials of a campaign: enumerated, sampled, repeated and ordered, each with a key that never changes.

The key is a hash of the campaign's name, the setting, the length and the number of the repeat. Samples and
random orders follow from hashes too: a model that is added to a campaign changes neither the key nor the
order of the other trials. A runner turns a trial into its outcome, of which a run is stored under that key.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from types import TracebackType
from typing import Any, Self

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.measuring.campaigns.campaign import AXES, UNCAPPED, Axes, Campaign, ModelEntry
from foretrain.measuring.watching.report import summarise
from foretrain.prediction.strategies.strategy import DATA_PARALLEL, ServerPlan, layout_of
from foretrain.store.runs import (
    Environment,
    PredictionMade,
    ResourceSeries,
    Run,
    Status,
    StepSummary,
    WorkerSteps,
    new_run_id,
)

_KEY_DIGITS = 20
_SOURCE = "campaign"
_OF_SEVERAL = ("strategy", "network")
"""Axes that mean nothing with one worker."""


@dataclass(frozen=True)
class Trial:
    """One run of a campaign: a point of its grid and the number of the repeat.

    `point` has the values of the axes and the model; what the campaign does not give is absent. With
    `command`, that command is run; otherwise the model is trained.
    """

    campaign: str
    point: Mapping[str, Any]
    device: str
    repeat: int = 0
    steps: int | None = None
    seconds: float = 2.0
    timeout: float = 120.0
    memory: float | None = None
    command: str | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The command with the values of the trial filled in; empty for a trial that trains a model."""
        if self.command is None:
            return ()
        values = {"workers": 1, "strategy": "", "network": UNCAPPED, **self.point, "repeat": self.repeat}
        return tuple(shlex.split(self.command.format(**values)))

    @property
    def workers(self) -> int:
        """How many train together."""
        return int(self.point.get("workers", 1))

    @property
    def strategy(self) -> str:
        """The strategy, `single` for one worker."""
        return str(self.point.get("strategy", DATA_PARALLEL)) if self.workers > 1 else "single"

    @property
    def servers(self) -> ServerPlan | None:
        """The parameter servers of its strategy; a command may name a strategy that is not foretrain's."""
        with suppress(InvalidRequest):
            return layout_of(self.strategy, self.workers, self.workers).servers
        return None

    @property
    def network(self) -> str | None:
        """The rate limit of the network; None where there is none."""
        network = self.point.get("network")
        return None if network == UNCAPPED else network

    @property
    def setting(self) -> dict[str, Any]:
        """The keywords of `foretrain.predict` that describe the trial."""
        kept = {name: value for name, value in self.point.items() if name not in ("workers", "network")}
        on = self.device if self.workers == 1 else f"{self.device}:1x{self.workers}"
        network = {} if self.network is None else {"network": self.network}
        return {**kept, "on": on, **network}

    @property
    def key(self) -> str:
        """Stable over runs, machines and changes of the campaign that do not concern the trial."""
        content = {
            "campaign": self.campaign, "point": dict(self.point), "device": self.device,
            "steps": self.steps, "seconds": None if self.steps else self.seconds, "memory": self.memory,
            "command": self.command, "repeat": self.repeat,
        }  # fmt: skip
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]

    @property
    def label(self) -> str:
        """For progress: `mnist-cnn batch 32, 2 workers ddp at 200Mbit/s`."""
        parts = [str(self.point.get("model", shlex.join(self.words[:2])))]
        parts += [f"{name} {self.point[name]}" for name in ("batch", "precision") if name in self.point]
        if self.workers > 1:
            parts.append(f"{self.workers} workers {self.strategy}" + (f" {self.network or ''}").rstrip())
        return ", ".join(parts)


def trials_of(campaign: Campaign) -> tuple[Trial, ...]:
    """All trials in the order they are run."""
    chosen = list({trial.key: trial for trial in _grid(campaign)}.values())
    if campaign.sample is not None:
        if campaign.sample > len(chosen):
            raise InvalidRequest(f"`sample` is {campaign.sample}, but the grid has {len(chosen)} trials")
        ranks = sorted(_rank(campaign.seed, trial) for trial in chosen)[: campaign.sample]
        chosen = [trial for trial in chosen if _rank(campaign.seed, trial) <= ranks[-1]]
    repeated = [replace(trial, repeat=repeat) for repeat in range(campaign.repeats) for trial in chosen]
    if campaign.order == "random":
        repeated.sort(key=lambda trial: _rank(campaign.seed + 1, trial))
    return tuple(repeated)


def remaining(trials: tuple[Trial, ...], stored: Container[str]) -> tuple[Trial, ...]:
    """The trials that are not stored yet."""
    return tuple(trial for trial in trials if trial.key not in stored)


def _rank(seed: int, trial: Trial) -> str:
    return hashlib.sha256(f"{seed}:{trial.key}".encode()).hexdigest()


def _grid(campaign: Campaign) -> Iterator[Trial]:
    """Every combination; what means nothing with one worker is left out there, so some may be equal."""
    entries: tuple[ModelEntry | None, ...] = campaign.models or (None,)
    for entry in entries:
        axes = {name: given for name in AXES if (given := _values(campaign, entry, name))}
        for point in product(*axes.values()):
            values = dict(zip(axes, point, strict=True))
            if values.get("workers", 1) == 1:
                values = {name: value for name, value in values.items() if name not in _OF_SEVERAL}
            model = {} if entry is None else {"model": entry.model}
            yield Trial(
                campaign=campaign.name,
                point={**model, **values},
                device=campaign.on,
                steps=campaign.steps,
                seconds=campaign.seconds,
                timeout=campaign.timeout,
                memory=campaign.memory,
                command=campaign.command,
            )


def _values(campaign: Campaign, entry: Axes | None, name: str) -> tuple[Any, ...] | None:
    own = None if entry is None else getattr(entry, name)
    values: tuple[Any, ...] | None = getattr(campaign, name) if own is None else own
    return values


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialOutcome:
    """How a trial ended and what was measured of it."""

    status: Status
    started_at: datetime
    seconds: float
    environment: Environment
    steps: tuple[WorkerSteps, ...] = ()
    series: tuple[ResourceSeries, ...] = ()
    message: str = ""
    exit_code: int | None = None
    summary: StepSummary | None = None


class TrialRunner(ABC):
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
    def run(self, trial: Trial) -> TrialOutcome:
        """Run one trial; a trial that fails is an outcome too, not an exception."""


def run_of(trial: Trial, outcome: TrialOutcome, prediction: PredictionMade | None) -> Run:
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
    if summary is None or trial.servers is None or not trial.servers.is_asynchronous:
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
