"""MLPerf's reference convergence points: epochs to target by batch size, each point left out in turn."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from foretrain.convergence.batch_size import fit_batch_size_law
from validation.report import Case, Metrics, SuiteReport, metrics

HERE, LINE, POWER, CONSTANT = "foretrain", "straight line", "power law", "constant"
_LEAST_BATCHES = 5
_CORRUPT = ("gpt3", 3072.0, 1e10)
"""One point of gpt3 at batch 3072 is ten times the others."""
_NOISY = ("unet3d",)
"""Seeds alone vary by 31 % there."""
_NOTES = (
    "Batch sizes of one benchmark in one round of MLPerf, five or more; a point is the mean of its seeds.",
    "gpt3 at batch 3072: the corrupt point (1.4e10 samples) is left out.",
    "unet3d: seeds of one configuration differ by 31 %, so its points are noise about a constant.",
)


def run(data: Path) -> SuiteReport:
    """Leave each point out and predict it."""
    points = _points(data)
    cases = _all(points, _LEAST_BATCHES)
    by_set: dict[str, dict[str, Metrics]] = {"leave point out": _table(cases)}
    quiet = [case for case in cases if not any(noisy in case.group for noisy in _NOISY)]
    by_set["leave point out, without unet3d"] = _table(quiet)
    inner = [case for case in cases if "inside" in case.name]
    by_set["leave point out, batch between others"] = _table(inner)
    by_set["leave point out, smallest and largest batch"] = _table([c for c in cases if c not in inner])
    by_set["leave point out, also of four batch sizes"] = _table(_all(points, _LEAST_BATCHES - 1))
    return SuiteReport("batch_size", tuple(cases), by_set, notes=_NOTES)


def _all(points: Mapping[str, Mapping[float, float]], least: int) -> list[Case]:
    return [
        case
        for name, by_batch in sorted(points.items())
        if len(by_batch) >= least
        for case in _leave_out(name, sorted(by_batch.items()))
    ]


def _points(data: Path) -> dict[str, dict[float, float]]:
    seeds: dict[str, dict[float, list[float]]] = {}
    with gzip.open(data / "mlperf" / "reference_convergence_points.csv.gz", "rt", newline="") as stream:
        for row in csv.DictReader(stream):
            batch, needed = float(row["batch"]), float(row["epochs_or_samples_to_target"])
            if (row["benchmark"], batch) == _CORRUPT[:2] and needed > _CORRUPT[2]:
                continue
            name = f"{row['benchmark']} {row['round']}"
            seeds.setdefault(name, {}).setdefault(batch, []).append(needed)
    return {
        name: {batch: float(np.mean(epochs)) for batch, epochs in by_batch.items()}
        for name, by_batch in seeds.items()
    }


def power_law_epochs(batches: Sequence[float], epochs: Sequence[float], batch: float) -> float:
    """E = a B^p through the points, in logarithms: the usual rival of the straight line."""
    slope, start = np.polyfit(np.log(batches), np.log(epochs), 1)
    return float(np.exp(start + slope * np.log(batch)))


def _leave_out(name: str, points: Sequence[tuple[float, float]]) -> list[Case]:
    cases = []
    for index, (batch, needed) in enumerate(points):
        others = [point for place, point in enumerate(points) if place != index]
        batches, epochs = [b for b, _ in others], [e for _, e in others]
        law = fit_batch_size_law(batches, epochs)
        predicted = law.epochs_at(batch)
        place = "inside" if 0 < index < len(points) - 1 else "outside"
        by_method = {
            HERE: predicted.p50,
            LINE: law.line(batch),
            POWER: power_law_epochs(batches, epochs, batch),
            CONSTANT: math.exp(float(np.mean(np.log(epochs)))),
        }
        cases.append(Case(f"{name} batch {batch:.0f} {place}", name, needed, by_method, predicted))
    return cases


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {name: metrics(cases, name, with_interval=name == HERE) for name in (HERE, LINE, POWER, CONSTANT)}
