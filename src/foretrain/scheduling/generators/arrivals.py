"""When jobs are submitted: the times between submissions, by the rules of the published studies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.scheduling.problem import Fleet


@dataclass(frozen=True, slots=True)
class Demand:
    """What the jobs of a problem ask of a fleet: the least GPU-seconds of each, in order of submission.

    The least GPU-seconds are those of the configuration with the fewest, usually one GPU.
    """

    gpu_seconds: tuple[float, ...]
    fleet: Fleet


class Arrivals(ABC):
    """Draws the times between submissions."""

    @abstractmethod
    def gaps(self, demand: Demand, random: np.random.Generator) -> Sequence[float]:
        """Seconds before each submission."""


@dataclass(frozen=True, slots=True)
class PoissonGaps(Arrivals):
    """Whole seconds between submissions with a Poisson distribution, as in the seed (means 30 s and 45 s)."""

    mean_seconds: float

    def gaps(self, demand: Demand, random: np.random.Generator) -> Sequence[float]:
        """Independent of jobs and fleet."""
        return [float(each) for each in random.poisson(self.mean_seconds, len(demand.gpu_seconds))]


@dataclass(frozen=True, slots=True)
class ExponentialGaps(Arrivals):
    """Exponential times between submissions with mean `node_seconds` / nodes."""

    node_seconds: float

    def gaps(self, demand: Demand, random: np.random.Generator) -> Sequence[float]:
        """More nodes, more jobs per hour."""
        mean = self.node_seconds / demand.fleet.nodes
        return [float(each) for each in random.exponential(mean, len(demand.gpu_seconds))]


@dataclass(frozen=True, slots=True)
class UtilisationGaps(Arrivals):
    """Exponential times between submissions at which jobs keep a share of all GPUs busy.

    With `u` the share and jobs at their most efficient width,

        mean gap = mean GPU-seconds of a job / (u · GPUs of the fleet)

    Several shares alternate, each for as many jobs as there are nodes. Jobs that hurry to meet their deadline
    use more GPU-seconds than at their most efficient width, so contention sets in well below 1.
    """

    shares: tuple[float, ...]

    def gaps(self, demand: Demand, random: np.random.Generator) -> Sequence[float]:
        """Blocks of jobs, each with its own mean."""
        mean_work = sum(demand.gpu_seconds) / max(1, len(demand.gpu_seconds))
        unit = random.exponential(1.0, len(demand.gpu_seconds))
        return [
            float(draw) * mean_work / (self._share(position, demand.fleet.nodes) * demand.fleet.most_gpus)
            for position, draw in enumerate(unit)
        ]

    def _share(self, position: int, block: int) -> float:
        return self.shares[position // block % len(self.shares)]
