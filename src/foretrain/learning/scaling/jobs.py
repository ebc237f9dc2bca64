"""Public timings as jobs: one model on one cluster, over placements and batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.measurements import gavel_steps, sia_steps
from foretrain.learning.measurements.gavel_steps import GavelStep
from foretrain.learning.measurements.sia_steps import SiaStep
from foretrain.learning.scaling.columns import Columns, columns, reference_batch
from foretrain.learning.scaling.placement import Placement, spread
from foretrain.learning.scaling.timings import Configuration, Timing
from foretrain.prediction.operators.listing import Floats


@dataclass(frozen=True, eq=False)
class Job:
    """One model on one cluster, timed in many configurations. `model` names the network, whoever ran it."""

    model: str
    cluster: str
    timings: tuple[Timing, ...]
    source: str

    @property
    def columns(self) -> Columns:
        """Its configurations."""
        places = [item.configuration for item in self.timings]
        return columns(places, self.reference_batch)

    @property
    def reference_batch(self) -> float:
        """Of all its configurations."""
        return reference_batch([item.configuration for item in self.timings])

    @property
    def log_seconds(self) -> Floats:
        """What was timed."""
        found: Floats = np.log([item.step_seconds for item in self.timings])
        return found


def sia_timing(step: SiaStep) -> Timing:
    """As a timing; devices are taken as spread evenly where it is not said."""
    placed = step.devices_per_node
    place = Placement(placed) if placed else spread(step.nodes, step.devices)
    return Timing(Configuration(place, step.batch), step.step_seconds)


def sia_jobs(steps: Sequence[SiaStep]) -> list[Job]:
    """The steps of each model on each cluster, of both tables."""
    found: dict[tuple[str, str], list[Timing]] = {}
    for step in steps:
        found.setdefault((step.model, step.cluster), []).append(sia_timing(step))
    return [Job(*key, tuple(timings), sia_steps.SOURCE) for key, timings in found.items()]


def gavel_timing(step: GavelStep) -> Timing:
    """As a timing."""
    return Timing(Configuration(spread(step.nodes, step.devices), step.batch), step.step_seconds)


def gavel_jobs(steps: Sequence[GavelStep]) -> list[Job]:
    """The steps of each network on each device; a single GPU is listed twice in the file, and taken once."""
    found: dict[tuple[str, str], dict[Configuration, Timing]] = {}
    for step in steps:
        timing = gavel_timing(step)
        found.setdefault((step.model, step.cluster), {}).setdefault(timing.configuration, timing)
    return [Job(*key, tuple(timings.values()), gavel_steps.SOURCE) for key, timings in found.items()]
