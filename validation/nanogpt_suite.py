"""modded-nanogpt: the final loss of GPT-2-small runs, from the first quarter, half and three quarters.

Records differ in model, optimiser, batch and schedule; the record is left out of the history. All records
were tuned to end at 3.28, so the others' median is nearly the answer: foretrain takes only the *shape* of
earlier runs, at this run's own level, and so cannot use that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foretrain.convergence.curves import Curve
from foretrain.convergence.families import Span, families
from foretrain.convergence.fitting import fit
from foretrain.convergence.history import History, Timeline, value_quantiles
from foretrain.convergence.rolling import ensemble, quantiles_of
from foretrain.estimates import Quantiles
from validation.convergence_methods import CUTS, FLOORLESS, HERE, OPTIMUS, WEIGHTED
from validation.convergence_runs import Run, nanogpt
from validation.report import Case, Metrics, SuiteReport, metrics

ALONE, CONSTANT = "foretrain, no history", "median of the others' final loss"
_A_RECORD = 2
"""Runs of a record that are used; more would differ by seed only."""
_NOTES = (
    "All records are tuned to 3.28: 'median of the others' is right by construction and no forecast.",
    "Short logs: later records evaluate every 250 steps, so a quarter of a run is one to three points. "
    "Families of curves need four points; foretrain with history needs two.",
    "Interval: the errors of the nearest runs when predicted from other records.",
)


def run(data: Path) -> SuiteReport:
    """Predict the final loss of up to two runs of each record."""
    runs = chosen = _sample(nanogpt(data))
    cases: list[Case] = []
    by_set: dict[str, dict[str, Metrics]] = {}
    timelines = {
        record: Timeline(History(tuple(item.curve for item in runs if item.curve.group != record)), True)
        for record in sorted({item.curve.group for item in chosen})
    }
    for cut in CUTS:
        attempted = [_case(item, timelines[item.curve.group], runs, cut) for item in chosen]
        at_cut = [case for case in attempted if case is not None]
        cases += at_cut
        by_set[f"{cut:.0%} seen, leave record out"] = _table(at_cut)
        curves = [case for case in at_cut if ALONE in case.predicted]
        by_set[f"{cut:.0%} seen, at least four points"] = _table(curves)
    return SuiteReport("nanogpt", tuple(cases), by_set, notes=_NOTES)


def _sample(runs: Sequence[Run]) -> list[Run]:
    taken: dict[str, int] = {}
    sample = []
    for item in runs:
        taken[item.curve.group] = taken.get(item.curve.group, 0) + 1
        if taken[item.curve.group] <= _A_RECORD:
            sample.append(item)
    return sample


def _case(item: Run, timeline: Timeline, runs: Sequence[Run], cut: float) -> Case | None:
    end = item.curve.planned_steps or item.curve.last_step
    seen = item.curve.until(cut * end)
    if len(seen) < 2:
        return None
    final = value_quantiles(seen, timeline, np.array([end]))
    if final is None:
        return None
    others = [other.target for other in runs if other.curve.group != item.curve.group]
    predicted = {HERE: final[0].p50, CONSTANT: float(np.median(others))}
    if len(seen) >= 4:
        predicted |= _by_curves(seen, end)
    name = f"{item.curve.name}, {cut:.0%} seen"
    return Case(name, item.curve.group, item.target, predicted, final[0])


def _by_curves(seen: Curve, end: float) -> dict[str, float]:
    at, span = np.array([end]), Span(seen.last_step, seen.planned_steps)
    values, weights = ensemble(seen, span).members(at)
    final: Quantiles = quantiles_of(values[:, 0], weights)
    lines = ((OPTIMUS, "optimus"), (WEIGHTED, "optimus-weighted"), (FLOORLESS, "power-law-floorless"))
    fitted = {name: float(fit(seen, families()[family], span).values(at)[0]) for name, family in lines}
    return {ALONE: final.p50, **fitted}


def _table(cases: Sequence[Case]) -> dict[str, Metrics]:
    names = (HERE, ALONE, OPTIMUS, WEIGHTED, FLOORLESS, CONSTANT)
    asked = [name for name in names if cases and all(name in case.predicted for case in cases)]
    return {name: metrics(cases, name, with_interval=name == HERE) for name in asked}
