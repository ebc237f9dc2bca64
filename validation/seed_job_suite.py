"""Sanghvi's question on public curves: time (and so cost) to 80 % accuracy on CIFAR-10, from part of a run.

As in K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU Setting", an
epoch's time is the median of those seen, and the job's time is that times the epochs predicted; its cost is
that at a fixed hourly price, with the same relative error. The paper predicted 94 and 51 epochs where it took
25: off by 276 % and 104 %. DAWNBench has no run of its network (ResNet-50), but twelve of ResNet-164 on its
devices, a K80 or a P100.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from foretrain.units import HOUR
from validation.convergence_methods import HERE, reaching_case, table
from validation.convergence_runs import Run, dawnbench
from validation.dawnbench_suite import submitter
from validation.report import Case, Metrics, SuiteReport

ACCURACY = 80.0
CUTS = (0.5, 0.75)
PAPER_EPOCHS = {"P100": 94, "2xK80": 51}
PAPER_ACTUAL_EPOCHS = 25
_PAPER_DEVICES = ("1k80", "1p100")
_NOTES = (
    "Sanghvi's program on its own two runs: "
    + ", ".join(
        f"{name} {abs(epochs / PAPER_ACTUAL_EPOCHS - 1):.0%}" for name, epochs in PAPER_EPOCHS.items()
    )
    + " (its loss model is that of Optimus).",
    "A quarter of the way is two to six epochs of these runs: too few to ask.",
    "The planned length (the last epoch of the file) is known. Runs left in may be near twins of the one "
    "left out (the same network on another machine). Without any run of the same submitter there is no run "
    "of that network and plan, and the answer is poor: see 'leave submitter out'.",
)


@dataclass(frozen=True)
class Clock:
    """When each epoch of a run was done, in seconds, by its accuracy."""

    seconds: tuple[float, ...]
    accuracies: tuple[float, ...]

    @property
    def to_accuracy(self) -> float:
        """Seconds until the accuracy was met."""
        met = [s for s, value in zip(self.seconds, self.accuracies, strict=True) if value >= ACCURACY]
        return met[0] if met else math.inf

    def seconds_per_epoch(self, epochs: int) -> float:
        """The median of the first `epochs` epochs."""
        marks = (0.0, *self.seconds[:epochs])
        return statistics.median(after - before for before, after in pairwise(marks))


def run(data: Path) -> SuiteReport:
    """Predict each run from the others: without its entry, then without its submitter."""
    runs = [replace(item, target=ACCURACY) for item in dawnbench(data) if item.task == "CIFAR10"]
    runs = [item for item in runs if math.isfinite(item.meets_at)]
    clocks = read_clocks(data / "dawnbench" / "train_curves.csv")
    cases: list[Case] = []
    by_set: dict[str, dict[str, Metrics]] = {}
    for cut in CUTS:
        at_cut = _cases(runs, clocks, cut, by_submitter=False)
        same_devices = [case for case in at_cut if any(name in case.name for name in _PAPER_DEVICES)]
        by_set[f"K80 and P100, {cut:.0%} seen, leave entry out"] = table(same_devices)
        by_set[f"all, {cut:.0%} seen, leave entry out"] = table(at_cut)
        by_set[f"all, {cut:.0%} seen, leave submitter out"] = table(
            _cases(runs, clocks, cut, by_submitter=True)
        )
        cases += at_cut
    return SuiteReport("seed_job", tuple(cases), by_set, notes=_NOTES)


def read_clocks(file: Path) -> dict[str, Clock]:
    """The clock of each entry of CIFAR-10."""
    rows: dict[str, list[tuple[float, float]]] = {}
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["task"] == "CIFAR10" and row["hours"] and row["m1"]:
                rows.setdefault(row["entry"], []).append((float(row["hours"]) * HOUR, float(row["m1"])))
    return {
        entry: Clock(tuple(second for second, _ in listed), tuple(value for _, value in listed))
        for entry, listed in rows.items()
    }


def in_seconds(case: Case, clock: Clock, cut: float) -> Case:
    """Epochs as time: those predicted at the median time of those seen, against the clock."""
    each = clock.seconds_per_epoch(max(1, math.floor(cut * case.measured)))
    return Case(
        case.name,
        case.group,
        clock.to_accuracy,
        {method: epochs * each for method, epochs in case.predicted.items()},
        None if case.interval is None else case.interval.scale(each),
    )


def _cases(runs: Sequence[Run], clocks: dict[str, Clock], cut: float, by_submitter: bool) -> list[Case]:
    cases = []
    for item in runs:
        others = [
            other
            for other in runs
            if (submitter(other) != submitter(item) if by_submitter else other.curve.name != item.curve.name)
        ]
        case = reaching_case(item, others, cut)
        if case is not None and HERE in case.predicted:
            cases.append(in_seconds(case, clocks[item.curve.name], cut))
    return cases
