"""Methods that predict when a target is met from a truncated run: foretrain and the baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foretrain.convergence.curves import Curve, Target
from foretrain.convergence.families import CurveHorizon, families
from foretrain.convergence.fitting import fit
from foretrain.convergence.forecast import Convergence, ConvergenceRequest, forecast
from foretrain.convergence.history import History
from foretrain.convergence.rolling import reaching_steps
from foretrain.estimates import Quantiles
from validation.convergence_runs import Run
from validation.report import Case, Metrics, metrics

HERE, ALONE = "foretrain", "foretrain, no history"
OPTIMUS, WEIGHTED, FLOORLESS = "Optimus", "Optimus, weighted", "power law, no floor"
NEIGHBOUR, CONSTANT, SHARE = "nearest run", "median of the others", "0.9 of the plan"
METHODS = (HERE, ALONE, OPTIMUS, WEIGHTED, FLOORLESS, NEIGHBOUR, CONSTANT, SHARE)
CUTS = (0.25, 0.5, 0.75)
_CAP = 10.0
"""A method that never reaches the target is taken to predict this multiple of the steps seen."""
_GRID = 200


def reaching_case(run: Run, others: Sequence[Run], cut: float, alone: bool = True) -> Case | None:
    """One run, truncated at the share `cut` of its steps to target, by every method; None if too short."""
    seen = run.curve.until(cut * run.meets_at)
    if len(seen) < 4 or float(np.ptp(seen.values)) == 0:
        return None
    target = Target(run.curve.metric, run.target)
    history = History(tuple(other.curve for other in others))
    answer = forecast(ConvergenceRequest(seen, target, history=history))
    predicted = {HERE: _capped(answer.steps.p50, seen)}
    if alone:
        predicted[ALONE] = _capped(forecast(ConvergenceRequest(seen, target)).steps.p50, seen)
    for name, family in (
        (OPTIMUS, "optimus"),
        (WEIGHTED, "optimus-weighted"),
        (FLOORLESS, "power-law-floorless"),
    ):
        predicted[name] = _by_family(seen, run.target, family)
    predicted |= baselines(run, seen, others)
    return Case(
        f"{run.curve.name}, {cut:.0%} seen", run.curve.group, run.meets_at, predicted, _interval(answer, seen)
    )


def _interval(answer: Convergence, seen: Curve) -> Quantiles:
    steps = answer.steps
    return Quantiles(*(_capped(value, seen) for value in (steps.p10, steps.p50, steps.p90)))


def _capped(steps: float, seen: Curve) -> float:
    return min(steps, _CAP * seen.last_step)


def _by_family(seen: Curve, target: float, name: str) -> float:
    grid = np.geomspace(seen.last_step, _CAP * seen.last_step, _GRID)
    values = fit(seen, families()[name], CurveHorizon(seen.last_step)).values(grid)[None, :]
    return _capped(float(reaching_steps(grid, values, target, seen.direction.sign)[0]), seen)


def baselines(run: Run, seen: Curve, others: Sequence[Run]) -> dict[str, float]:
    """What the others say without any model, as shares of the plan."""
    planned = run.curve.planned_steps or 1.0
    met = [other for other in others if math.isfinite(other.meets_at)]
    shares = [other.meets_at / (other.curve.planned_steps or 1.0) for other in met]
    points = np.linspace(0.3, 1.0, 8) * seen.last_step
    own = np.interp(points, seen.steps, seen.values)
    distances = []
    for other in met:
        there = points / planned * (other.curve.planned_steps or 1.0)
        theirs = np.interp(there, other.curve.steps, other.curve.values)
        distances.append(float(np.mean((theirs - own) ** 2)))
    return {
        NEIGHBOUR: max(seen.last_step, shares[int(np.argmin(distances))] * planned),
        CONSTANT: max(seen.last_step, float(np.median(shares)) * planned),
        SHARE: max(seen.last_step, 0.9 * planned),
    }


def table(cases: Sequence[Case]) -> dict[str, Metrics]:
    """Errors of every method that was asked."""
    names = [name for name in METHODS if all(name in case.predicted for case in cases)]
    return {name: metrics(cases, name, with_interval=name == HERE) for name in names}
