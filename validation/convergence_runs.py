"""Public training curves: DAWNBench, AlgoPerf and modded-nanogpt, as curves with their targets and plans."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foretrain.convergence.curves import Curve, MetricDirection, curve_of

DAWNBENCH_TARGETS = {"CIFAR10": ("m1", 94.0), "ImageNet": ("m2", 93.0)}
"""Metric column and target; SQuAD's files mix F1 with hours in one column and are left out."""
ALGOPERF_WORKLOADS = (
    "fastmri",
    "imagenet_resnet",
    "imagenet_vit",
    "librispeech_conformer",
    "librispeech_deepspeech",
    "wmt",
)
_LEAST = 5


@dataclass(frozen=True)
class Run:
    """A curve of a task, with the value the task asks for."""

    task: str
    curve: Curve
    target: float

    @property
    def meets_at(self) -> float:
        """Where the target was met; infinite if it was not."""
        return self.curve.first_reaching(self.target)


def dawnbench(data: Path) -> list[Run]:
    """Runs of CIFAR-10 and ImageNet; the last epoch of a file is its planned length."""
    runs = []
    rows: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for row in _rows(data / "dawnbench" / "train_curves.csv"):
        rows.setdefault((row["task"], row["entry"]), []).append(row)
    for (task, entry), listed in sorted(rows.items()):
        if task not in DAWNBENCH_TARGETS:
            continue
        column, target = DAWNBENCH_TARGETS[task]
        epochs = np.array([_number(row["epoch"]) for row in listed])
        values = np.array([_number(row[column]) for row in listed])
        curve = curve_of(epochs, values, "accuracy", MetricDirection.UP, entry, entry, zero_is_first=True)
        runs.append(Run(task, _planned(curve, curve.last_step), target))
    return runs


def algoperf(data: Path) -> list[Run]:
    """Runs of the six base workloads, JAX and PyTorch together; the step hint is the planned length."""
    points: dict[str, tuple[list[float], list[float]]] = {}
    for row in _rows(data / "algoperf" / "curves.csv.gz"):
        steps, values = points.setdefault(row["run"], ([], []))
        steps.append(_number(row["step"]))
        values.append(_number(row["target_metric"]))
    runs = []
    for row in _rows(data / "algoperf" / "runs.csv.gz"):
        task = row["workload"].removesuffix("_jax").removesuffix("_pytorch")
        if task not in ALGOPERF_WORKLOADS or row["run"] not in points:
            continue
        direction = MetricDirection.DOWN if row["metric"] == "wer" else MetricDirection.UP
        name = f"{row['submission']}/{row['study']}/{row['trial']} {row['workload']}"
        logged = points[row["run"]]
        curve = curve_of(
            np.array(logged[0]), np.array(logged[1]), row["metric"], direction, name, row["submission"]
        )
        if len(curve) >= _LEAST:
            runs.append(Run(task, _planned(curve, float(row["step_hint"])), float(row["target"])))
    return runs


def nanogpt(data: Path) -> list[Run]:
    """Runs that reached their planned end; a record is a group, and its final loss is to be predicted."""
    points: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in _rows(data / "modded_nanogpt" / "val_loss_curves.csv.gz"):
        step, planned, loss = (_number(row[name]) for name in ("step", "planned_steps", "val_loss"))
        if step > 0:
            points.setdefault((row["record"], row["run"]), []).append((step, planned, loss))
    runs = []
    for (record, run), listed in sorted(points.items()):
        steps, planned, losses = np.array(listed).T
        curve = curve_of(steps, losses, "loss", MetricDirection.DOWN, f"{record}/{run}", record)
        if len(curve) > _LEAST and curve.last_step >= 0.99 * planned[0]:
            runs.append(Run("nanogpt", _planned(curve, float(planned[0])), float(curve.values[-1])))
    return runs


def _planned(curve: Curve, steps: float) -> Curve:
    return replace(curve, planned_steps=steps)


def _number(text: str) -> float:
    return float(text) if text.strip() else float("nan")


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", newline="") as packed:
            yield from csv.DictReader(packed)
    else:
        with path.open(newline="") as plain:
            yield from csv.DictReader(plain)
