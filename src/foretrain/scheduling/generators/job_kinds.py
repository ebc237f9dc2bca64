"""How long generated jobs take: those of the seed's job table, and synthetic ones that scale well."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from foretrain.estimates import Quantiles
from foretrain.scheduling.problem import Configuration, Fleet

JOB_TABLE = ("JJ1", "JJ2", "JJ3", "JJ4", "JJ5", "JJ6")
_STAND_INS = {"JJ3": "JJ2", "JJ6": "JJ5"}
"""Jobs that differ in their framework alone from the one whose times they have."""


@dataclass(frozen=True)
class Times:
    """How long one job takes by GPU and number of GPUs, and how sure that is."""

    name: str
    seconds: Mapping[tuple[str, int], float]
    spread: Quantiles

    def on(self, fleet: Fleet) -> dict[Configuration, float]:
        """Times on every node type and number of GPUs of a fleet."""
        return {
            Configuration(node_type.name, gpus): self.seconds[node_type.gpu, gpus]
            for node_type in fleet.types.values()
            for gpus in range(1, node_type.gpus + 1)
            if (node_type.gpu, gpus) in self.seconds
        }


class JobKind(ABC):
    """Draws the times of jobs."""

    @abstractmethod
    def draw(self, random: np.random.Generator) -> Times:
        """The times of one job."""


@dataclass(frozen=True, slots=True)
class TableJobs(JobKind):
    """A job of the table (`JOB_TABLE`), its epochs multiplied by a factor uniform in `factors`.

    1 is the table as it is. A training of 90 epochs on all of ImageNet is 296 times JJ5. These jobs scale
    badly: on 8 GPUs hardly more than three times as fast as on one.
    """

    factors: tuple[float, float]

    def draw(self, random: np.random.Generator) -> Times:
        """Any job of the table with the same probability."""
        name = JOB_TABLE[int(random.integers(len(JOB_TABLE)))]
        factor = float(random.uniform(*self.factors))
        one = table_times()[_STAND_INS.get(name, name)]
        return Times(name, {key: factor * seconds for key, seconds in one.seconds.items()}, one.spread)


@dataclass(frozen=True, slots=True)
class AmdahlJobs(JobKind):
    """Synthetic jobs that scale well, by Amdahl's law with a small serial share s:

        seconds(g) = one · (s + (1 - s) / g)

    `one_gpu_seconds` (on a K80), `serial_shares` and the time on an M60 relative to a K80 are uniform.
    """

    one_gpu_seconds: tuple[float, float]
    serial_shares: tuple[float, float] = (0.01, 0.05)
    m60_over_k80: tuple[float, float] = (0.8, 1.25)
    most_gpus: int = 8

    def draw(self, random: np.random.Generator) -> Times:
        """Times on K80 and M60."""
        one = float(random.uniform(*self.one_gpu_seconds))
        serial = float(random.uniform(*self.serial_shares))
        relative = {"k80": 1.0, "m60": float(random.uniform(*self.m60_over_k80))}
        seconds = {
            (gpu, gpus): one * ratio * (serial + (1 - serial) / gpus)
            for gpu, ratio in relative.items()
            for gpus in range(1, self.most_gpus + 1)
        }
        return Times("amdahl", seconds, Quantiles(1.0, 1.0, 1.0))


@cache
def table_times() -> dict[str, Times]:
    """The times of the job table: `data/zoo_job_times.csv`, written by `scripts/scheduling_job_times.py`.

    They are foretrain's own predictions for the zoo's models. The spread of a job is that of its first row.
    """
    file = files("foretrain.scheduling") / "data" / "zoo_job_times.csv"
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    times: dict[str, dict[tuple[str, int], float]] = {}
    spreads: dict[str, Quantiles] = {}
    for row in rows:
        p10, p50, p90 = (float(row[quantile]) for quantile in ("p10", "p50", "p90"))
        times.setdefault(row["job"], {})[row["device"], int(row["gpus"])] = p50
        spreads.setdefault(row["job"], Quantiles(p10 / p50, 1.0, p90 / p50))
    return {job: Times(job, seconds, spreads[job]) for job, seconds in times.items()}
