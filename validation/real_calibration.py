"""What the predictions of real runs rest on, all measured without training on several workers.

Each worker's own step without communication, in processor time while all run; copies in memory; and
micro-benchmarks of the collectives between the workers: seconds on the wall and processor seconds by size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from foretrain.measuring.distributed_trials.crew import Crew
from foretrain.units import KIB, MIB
from validation.real_cases import BATCHES, CAPS
from validation.real_quiet import Quiet

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "send", "push_pull")
SIZES: Mapping[str, Sequence[float]] = {
    "uncapped": (16 * KIB, 256 * KIB, MIB, 4 * MIB, 12 * MIB, 24 * MIB),
    "1 Gbit": (16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB),
    "200 Mbit": (16 * KIB, 256 * KIB, MIB, 4 * MIB, 12 * MIB),
}
_SERVER_LARGEST = {"uncapped": 24 * MIB, "1 Gbit": 16 * MIB, "200 Mbit": 4 * MIB}
"""Messages to a server all pass its one card: larger ones only take longer."""
_COPIED_BYTES = 16 * MIB
_SECONDS = 0.25


class Exchange(NamedTuple):
    """Seconds of an exchange, and the share of its core that each worker keeps busy meanwhile."""

    seconds: float
    share: float


@dataclass(frozen=True)
class Curve:
    """Seconds and processor seconds of one collective by message size."""

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]
    processor_seconds: tuple[float, ...]

    def at(self, size: float) -> Exchange:
        """A straight line between the sizes measured, and beyond the last as between the last two."""
        seconds = _line(size, self.sizes, self.seconds)
        return Exchange(seconds, min(1.0, _line(size, self.sizes, self.processor_seconds) / seconds))


def _line(size: float, sizes: Sequence[float], values: Sequence[float]) -> float:
    if size <= sizes[-1]:
        return float(np.interp(size, sizes, values))
    slope = (values[-1] - values[-2]) / (sizes[-1] - sizes[-2])
    return values[-1] + max(0.0, slope) * (size - sizes[-1])


@dataclass(frozen=True)
class Solo:
    """One worker's step without communication: seconds of each block, in the model's order."""

    forward_seconds: tuple[float, ...]
    backward_seconds: tuple[float, ...]
    optimizer_seconds: float
    boundary_bytes: tuple[float, ...]

    @property
    def step_seconds(self) -> float:
        """All of it."""
        return sum(self.forward_seconds) + sum(self.backward_seconds) + self.optimizer_seconds


@dataclass(frozen=True)
class Calibration:
    """All that was measured; curves by collective and cap. Rates are bytes of a tensor per second."""

    workers: int
    cores: int
    solo: Mapping[str, Solo]
    curves: Mapping[tuple[str, str], Curve]
    copy_bytes_per_second: float
    clone_bytes_per_second: float
    add_bytes_per_second: float


def calibrated(crew: Crew, quiet: Quiet) -> Calibration:
    """Measure it."""
    cores = len(os.sched_getaffinity(0))
    crew.cap(None)
    solo = {model: _solo(quiet, model, batch) for model, batch in BATCHES.items()}
    copies = quiet.do("copies", bytes=int(_COPIED_BYTES), runs=15)
    rates = {name: _COPIED_BYTES / fmean(each[name] for each in copies) for name in copies[0]}
    curves = {}
    for cap, limit in CAPS.items():
        crew.cap(limit)
        for collective in COLLECTIVES:
            largest = _SERVER_LARGEST[cap] if collective == "push_pull" else SIZES[cap][-1]
            sizes = [size for size in SIZES[cap] if size <= largest]
            curves[collective, cap] = _curve(quiet, collective, sizes)
    crew.cap(None)
    return Calibration(crew.workers, cores, solo, curves, rates["copy"], rates["clone"], rates["add"])


def _solo(quiet: Quiet, model: str, batch: int) -> Solo:
    """Every worker for itself, all at once: they share caches and memory as they will when they train."""
    answers = quiet.do("solo", model=model, batch=batch, seconds=1.5, fewest=5)
    return Solo(
        forward_seconds=_means(answers, "forward_seconds"),
        backward_seconds=_means(answers, "backward_seconds"),
        optimizer_seconds=fmean(each["optimizer_seconds"] for each in answers),
        boundary_bytes=tuple(answers[0]["boundary_bytes"]),
    )


def _means(answers: Sequence[Mapping[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(fmean(values) for values in zip(*(each[name] for each in answers), strict=True))


def _curve(quiet: Quiet, collective: str, sizes: Sequence[float]) -> Curve:
    points = list(_points(quiet, collective, sizes))
    times = np.maximum.accumulate([seconds for seconds, _ in points])  # more bytes never take less
    return Curve(tuple(sizes), tuple(times.tolist()), tuple(processor for _, processor in points))


def _points(quiet: Quiet, collective: str, sizes: Sequence[float]) -> Iterator[tuple[float, float]]:
    for size in sizes:
        answers = quiet.do("collectives", collective=collective, bytes=int(size), seconds=_SECONDS)
        if collective == "send":  # there and back between the first two
            answers = [{name: value / 2 for name, value in each.items()} for each in answers[:2]]
        yield fmean(each["seconds"] for each in answers), fmean(each["processor_seconds"] for each in answers)
