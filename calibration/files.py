"""Calibration files: fitted constants, the data they came from, and the error on held-out data."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets.measurements import Measurements
from foretrain.prediction.operators.pricing import Floats

FORMAT = 1
_DIGITS = 6


def folder() -> Path:
    """Where the package keeps its calibrations, in a source checkout."""
    return Path(__file__).parents[1] / "src" / "foretrain" / "facts" / "data" / "calibrations"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of every measurement, in their order, by fits that did not see its shape or its device."""

    shape_unseen: Floats
    device_unseen: Floats

    def residuals(self, measured: Floats) -> dict[str, dict[str, float]]:
        """Quantiles of measured / predicted, as a calibration states them."""
        return {"seen": spread(measured, self.shape_unseen), "unseen": spread(measured, self.device_unseen)}


def spread(measured: Floats, predicted: Floats) -> dict[str, float]:
    """Quantiles of measured / predicted, and of how many."""
    ratio = measured / predicted
    p10, p50, p90 = np.quantile(ratio, [0.1, 0.5, 0.9]).tolist()
    error = float(np.mean(np.abs(predicted / measured - 1)))
    return {"p10": p10, "p50": p50, "p90": p90, "mean_absolute_error": error, "cases": len(ratio)}


def data_used(measurements: Sequence[Measurements]) -> list[dict[str, Any]]:
    """Each data set with how many measurements of each device were used."""
    counts: dict[str, Counter[str]] = {}
    for part in measurements:
        of_source = counts.setdefault(part.source, Counter())
        of_source.update({name: int((part.device_ids == name).sum()) for name in part.devices})
    return [{"source": source, "measurements": dict(count)} for source, count in counts.items()]


def write(name: str, content: Mapping[str, Any]) -> Path:
    """Write a calibration as text, with its format and the software that made it."""
    header = {"format": FORMAT, "software": {"python": platform.python_version(), "numpy": np.__version__}}
    file = folder() / name
    file.write_text(json.dumps(rounded({**header, **content}), indent=1) + "\n", encoding="utf-8")
    return file


def rounded(value: Any) -> Any:
    """A content with all its numbers as a calibration states them."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
