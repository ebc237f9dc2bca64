"""DAWNBench's curves for two-phase plans: where each met its target and flattened, and its critical batches.

The critical batch size along a curve is that of the gradient statistics in the Sia data, at the top-1
accuracy the entry had by then.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrain.convergence.curves import Floats, Target
from foretrain.convergence.forecast import ConvergenceRequest, forecast
from foretrain.convergence.history import History
from foretrain.errors import InvalidRequest
from foretrain.jobs.epochs import where_it_flattens
from validation.convergence_runs import Run, dawnbench
from validation.dawnbench_suite import submitter
from validation.two_phase_cases import Network

NETWORKS = {
    ("ImageNet", "resnet50"): Network("resnet50", 1_281_167, 1024),
    ("ImageNet", "resnet152"): Network("resnet152", 1_281_167, 1024),
    ("CIFAR10", "resnet50"): Network("resnet50", 50_000, 512, image_size=32),
}
_REFERENCE_BATCHES = {"ImageNet": ("imagenet", 200), "CIFAR10": ("cifar10", 128)}
"""What the gradient statistics call a task, and the batch they are for: the smallest of its runs."""


@dataclass(frozen=True)
class Curve:
    """An entry, its network, and where its curve met the target and flattened, in epochs."""

    run: Run
    network: Network
    flattens_at: float

    @property
    def name(self) -> str:
        """Task and entry: both tasks have a `fastai_pytorch`."""
        return f"{self.run.task} {self.run.curve.name}"


def read_curves(data: Path) -> list[Curve]:
    """The entries whose network is known and whose target is met."""
    with (data / "dawnbench" / "entries.csv").open(newline="") as lines:
        models = {(row["task"], row["entry"]): row["model"] for row in csv.DictReader(lines)}
    curves = []
    for item in dawnbench(data):
        model = models[item.task, item.curve.name].lower().replace(" ", "").replace("-", "")
        name = next((known for known in ("resnet50", "resnet152") if model.startswith(known)), "")
        network = NETWORKS.get((item.task, name))
        if network is not None and math.isfinite(item.meets_at):
            curves.append(Curve(item, network, _flattens_at(item)))
    return curves


def _flattens_at(item: Run) -> float:
    """By the best value so far, up to the target; a curve that never flattens does so at its end."""
    seen = item.curve.until(item.meets_at)
    try:
        return where_it_flattens(seen.steps, np.maximum.accumulate(seen.values))
    except InvalidRequest:
        return item.meets_at


def predicted_epochs(item: Run, runs: Sequence[Run]) -> float | None:
    """Epochs to the target, predicted from half of the log without runs of the same submitter."""
    seen = item.curve.until(0.5 * item.meets_at)
    if len(seen) < 4:
        return None
    others = [one.curve for one in runs if one.task == item.task and submitter(one) != submitter(item)]
    request = ConvergenceRequest(seen, Target(item.curve.metric, item.target), history=History(tuple(others)))
    epochs = forecast(request).steps.p50
    return epochs if math.isfinite(epochs) else None


@dataclass(frozen=True)
class CriticalBatches:
    """Critical batch size against accuracy: reference · σ²/|G|² of a run of the same task."""

    accuracies: Floats
    batches: Floats

    def at(self, accuracy: float) -> float:
        """At a top-1 accuracy in percent; beyond the run's ends as there."""
        return float(np.interp(accuracy, self.accuracies, self.batches))


def critical_batches(data: Path, task: str) -> CriticalBatches:
    """From the run of the smallest batch, whose statistics are the cleanest."""
    name, reference = _REFERENCE_BATCHES[task]
    rows = [
        (100 * float(row["metric"]), reference * float(row["grad_var"]) / float(row["grad_sqr"]))
        for row in _packed(data / "sia" / "validation_curves.csv.gz")
        if row["model"] == name and int(row["batch"]) == reference
    ]
    accuracies, batches = np.array(rows).T
    best = np.maximum.accumulate(accuracies)
    risen = np.concatenate(([True], np.diff(best) > 0))
    return CriticalBatches(best[risen], batches[risen])


def top_1(data: Path, task: str) -> dict[str, tuple[Floats, Floats]]:
    """Epochs and best top-1 accuracy so far of each entry; logs that count from 0 are put one later."""
    rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (data / "dawnbench" / "train_curves.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["task"] == task and row["epoch"] and row["m1"]:
                rows[row["entry"]].append((float(row["epoch"]), float(row["m1"])))
    by_entry = {}
    for entry, listed in rows.items():
        epochs, values = np.array(sorted(listed)).T
        by_entry[entry] = (epochs + (epochs[0] == 0), np.maximum.accumulate(values))
    return by_entry


def stages_of(
    epochs: float, curve: tuple[Floats, Floats], critical: CriticalBatches, count: int
) -> tuple[tuple[float, float], ...]:
    """`count` equal stages of (epochs, critical batch at the middle of the stage)."""
    middles = (np.arange(count) + 0.5) / count * epochs
    return tuple((epochs / count, critical.at(float(np.interp(middle, *curve)))) for middle in middles)


def _packed(path: Path) -> Iterator[Mapping[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        yield from csv.DictReader(lines)
