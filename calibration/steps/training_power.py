"""Fits `TrainingPower`: the energy of a product's FLOP in training, from whole steps of many sources.

A step of which `product_seconds` are products on tensor cores takes, with other constants x,

    predicted(x) = predicted + product_seconds · (share / share(x) - 1)

where share is the one it was predicted with. Minimised is the soft absolute value of ln(measured / predicted)
over steps of which products are at least 60 %; every source weighs as much as the square root of its steps.
Three constants are fitted to about ten sources. A source is judged by constants fitted without it, and
without sources of the same harness.

    python -m calibration.steps.training_power build/transfer/steps.csv     changes calibrations/products.json
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from calibration import files
from calibration.least_squares import minimise
from foretrain.facts.devices import device
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import TrainingPower, kernels_of
from foretrain.prediction.operators.mixed_precision import GRAPHICS
from foretrain.prediction.operators.pricing import Floats

_LEAST_SHARE = 0.6
"""Of a step in products: below, other parts decide."""
_LIKELY = TrainingPower(joules_per_flop=1.8e-12, decline=0.12, eight_bit=0.5)
"""Where the search starts, and what it is held near: half the energy in six years, or at half the bits."""
_PULL = (0.05, 0.5, 1.0)
_SCALE = 0.05
SAME_HARNESS = (frozenset({"llm_foundry", "published"}),)
"""Sources that share a harness: the published throughputs have other rows of llm-foundry."""


@dataclass(frozen=True)
class TimedStep:
    """A measured step of a source, its prediction, and the part of it in products on tensor cores."""

    source: str
    name: str
    device: str
    unit: str
    measured_seconds: float
    predicted_seconds: float
    product_seconds: float

    def predicted(self, power: TrainingPower, known: matrix.ProductCalibration) -> float:
        """Seconds with other constants, as `known` predicted it."""
        return self.predicted_seconds + self.product_seconds * (self._factor(power, known) - 1)

    def _factor(self, power: TrainingPower, known: matrix.ProductCalibration) -> float:
        board = device(self.device)
        if kernels_of(board) in GRAPHICS and self.unit == "tensor":
            return 1.0  # their power is that of `mixed_precision`
        return known.share(self.unit, board) / replace(known, training=power).share(self.unit, board)

    @property
    def is_fitted_to(self) -> bool:
        """Whether products decide how long it takes."""
        return self.product_seconds >= _LEAST_SHARE * self.predicted_seconds


def fit_power(steps: Sequence[TimedStep], known: matrix.ProductCalibration) -> TrainingPower:
    """The constants that fit the steps best, held near likely ones."""
    used = [step for step in steps if step.is_fitted_to]
    counts = {step.source: sum(other.source == step.source for other in used) for step in used}
    weights = np.array([counts[step.source] ** -0.25 for step in used])
    measured = np.log([step.measured_seconds for step in used])
    start = np.log(list(asdict(_LIKELY).values()))

    def power(x: Floats) -> TrainingPower:
        return TrainingPower(*np.exp(x).tolist())

    def residuals(x: Floats) -> Floats:
        predicted = np.log([step.predicted(power(x), known) for step in used])
        return np.append((predicted - measured) * weights, _PULL * (x - start))

    return power(minimise(residuals, start, scale=_SCALE))


def leave_source_out(
    steps: Sequence[TimedStep], known: matrix.ProductCalibration
) -> dict[str, TrainingPower]:
    """For every source the constants of the others."""
    powers = {}
    for name in dict.fromkeys(step.source for step in steps):
        left_out = {name}.union(*(group for group in SAME_HARNESS if name in group))
        powers[name] = fit_power([step for step in steps if step.source not in left_out], known)
    return powers


def write_steps(file: Path, steps: Sequence[TimedStep]) -> None:
    """Keep steps as a table."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(TimedStep)])
        writer.writeheader()
        writer.writerows(asdict(step) for step in steps)


def read_steps(file: Path) -> list[TimedStep]:
    """A kept table of steps."""
    with file.open(newline="", encoding="utf-8") as stream:
        return [
            TimedStep(
                row["source"],
                row["name"],
                row["device"],
                row["unit"],
                *(float(row[name]) for name in ("measured_seconds", "predicted_seconds", "product_seconds")),
            )
            for row in csv.DictReader(stream)
        ]


def write_power(steps: Sequence[TimedStep]) -> Path:
    """Fit to all sources, judge each by the others, put the constants into the calibration of products."""
    known = matrix.calibration()
    power, others = fit_power(steps, known), leave_source_out(steps, known)
    judged = {}
    for name, without in others.items():
        own = [step for step in steps if step.source == name and step.is_fitted_to]
        if own:
            ratios = [step.measured_seconds / step.predicted(without, known) for step in own]
            judged[name] = {
                "steps": len(own),
                "median_measured_over_predicted_left_out": float(np.median(ratios)),
                "mean_error_left_out": float(np.mean([abs(1 / ratio - 1) for ratio in ratios])),
            }
    file = files.folder() / matrix.FILE
    content = json.loads(file.read_text(encoding="utf-8"))
    content["training"] = {**asdict(power), "fitted_to": judged}
    return files.write(matrix.FILE, content)


def describe(power: TrainingPower) -> str:
    """For the log of a fit."""
    later = power.joules_per_flop * math.exp(-power.decline * 6)
    return (
        f"{power.joules_per_flop * 1e12:.2f} pJ a FLOP in 2018, {later * 1e12:.2f} in 2024; "
        f"FP8 {power.eight_bit:.2f} of that"
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("python -m calibration.steps.training_power STEPS.csv")
    timed = read_steps(Path(sys.argv[1]))
    sys.stdout.write(f"{describe(fit_power(timed, matrix.calibration()))}\n{write_power(timed)}\n")
