"""Real logs of 49 public repositories: the value at the end of a run from its first part, without history.

A log is seen up to 25, 50 and 75 % of its last step. What is known besides is what a user has: the planned
end where the log names it, and the learning rates logged so far. No constant of the forecast was fitted on
these logs.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrain.convergence.curves import Curve, Floats, MetricDirection, curve_of
from foretrain.convergence.families import CurveHorizon, families
from foretrain.convergence.fitting import fit
from foretrain.convergence.rolling import ensemble, quantiles_of
from foretrain.convergence.schedules import logged_schedule
from foretrain.estimates import Quantiles
from validation.convergence_methods import CUTS, FLOORLESS, HERE, OPTIMUS
from validation.report import Case, Metrics, SuiteReport, metrics

LAST = "last value seen"
_LEAST = 4
_END = 0.05
"""The end of a run is the median of this last share of its points: single points of a noisy log are noise."""
_NOTES = (
    "Truth: the median of the last 5 % of a log's points.",
    "Curves of one repository are correlated; each is judged alone and none is history of another.",
    "The last step of the log is where the forecast is asked for; only `planned_end` counts as a plan.",
)


@dataclass(frozen=True)
class LoggedRun:
    """A curve with the plan and the learning rates of its log."""

    repository: str
    curve: Curve
    planned_end: float | None
    rates: tuple[Floats, Floats] | None

    @property
    def final_value(self) -> float:
        """The median of the last points."""
        count = max(1, round(_END * len(self.curve)))
        return float(np.median(self.curve.values[-count:]))


def logged_runs(data: Path) -> list[LoggedRun]:
    """All curves of `curves/`, in the order of `meta.csv`."""
    points = _columns(data / "curves" / "curves.csv.gz", "value")
    rates = _columns(data / "curves" / "lr.csv.gz", "learning_rate")
    runs = []
    with (data / "curves" / "meta.csv").open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            steps, values = points[row["curve_id"]]
            curve = curve_of(
                steps, values, row["metric"], MetricDirection(row["direction"]), row["curve_id"], row["repo"]
            )
            planned = float(row["planned_end"]) if row["planned_end"] else None
            runs.append(LoggedRun(row["repo"], curve, planned, rates.get(row["curve_id"])))
    return runs


def run(data: Path) -> SuiteReport:
    """Predict the final value of each log from its first part."""
    runs = logged_runs(data)
    cases: list[Case] = []
    by_set: dict[str, dict[str, Metrics]] = {}
    for cut in CUTS:
        attempted = [_case(item, cut) for item in runs]
        at_cut = [case for case in attempted if case is not None]
        cases += at_cut
        by_set[f"{cut:.0%} seen"] = _table(at_cut)
    return SuiteReport("curves", tuple(cases), by_set, notes=_NOTES)


def _case(item: LoggedRun, cut: float) -> Case | None:
    end = item.curve.last_step
    seen = item.curve.until(cut * end)
    true = item.final_value
    if len(seen) < _LEAST or float(np.ptp(seen.values)) == 0 or true == 0:
        return None
    final = _forecast(item, seen, end)
    span, at = CurveHorizon(seen.last_step), np.array([end])
    lines = ((OPTIMUS, "optimus"), (FLOORLESS, "power-law-floorless"))
    predicted = {name: float(fit(seen, families()[family], span).values(at)[0]) for name, family in lines}
    predicted |= {HERE: final.p50, LAST: float(seen.values[-1])}
    return Case(f"{seen.name} {seen.metric}, {cut:.0%} seen", item.repository, true, predicted, final)


def _forecast(item: LoggedRun, seen: Curve, end: float) -> Quantiles:
    planned, schedule = item.planned_end, None
    if item.rates is not None:
        steps, rates = item.rates
        known = steps <= seen.last_step
        read = logged_schedule(steps[known], rates[known], planned)
        if read is not None:
            planned, schedule = max(read.planned_steps, seen.last_step), read.schedule
    values, weights = ensemble(seen, CurveHorizon(seen.last_step, planned, schedule)).members(np.array([end]))
    return quantiles_of(values[:, 0], weights)


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    return {
        name: metrics(cases, name, with_interval=name == HERE) for name in (HERE, OPTIMUS, FLOORLESS, LAST)
    }


def _columns(path: Path, column: str) -> dict[str, tuple[Floats, Floats]]:
    columns: dict[str, tuple[list[float], list[float]]] = {}
    for row in _rows(path):
        steps, values = columns.setdefault(row["curve_id"], ([], []))
        steps.append(float(row["step"]))
        values.append(float(row[column] or "nan"))
    return {name: (np.array(steps), np.array(values)) for name, (steps, values) in columns.items()}


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    with gzip.open(path, "rt", newline="") as packed:
        yield from csv.DictReader(packed)
