"""The trials of a campaign: enumerated, sampled, repeated and ordered, each with a key that never changes.

The key is a hash of the campaign's name, the setting, the length and the number of the repeat. Samples and
random orders follow from hashes too: a model that is added to a campaign changes neither the key nor the
order of the other trials.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from foretrain.errors import InvalidRequest
from foretrain.measuring.campaigns.campaign import AXES, UNCAPPED, Axes, Campaign, ModelEntry

_KEY_DIGITS = 20
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
        return str(self.point.get("strategy", "ddp")) if self.workers > 1 else "single"

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
