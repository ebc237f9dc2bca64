"""How errors transfer within a source: variances of `corrections.error_model`, fitted to public measurements.

A source (one harness, its framework, hosts and cluster) stands for a user. The errors of a source have the
covariance of the model times a scale of the source (Student's t, as in the model), sources are independent,
and the variances are those of the largest marginal likelihood, with a pull of every variance to the same
small one where the sources say little. A source counts as `_MOST_ROWS` rows at most, so that no large table
decides alone.

    python -m calibration.steps.error_transfer build/own_timings/rows.csv    writes calibrations/transfer.json

The rows are those of `make validate SUITE=own_timings`; `make spread` runs this too.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path

import numpy as np

from calibration import files
from calibration.steps.timed_rows import TimedRow, read_rows
from foretrain.errors import InvalidRequest
from foretrain.prediction.corrections.error_model import FREEDOM, TERMS, StepError, Variances, shared_terms
from foretrain.prediction.corrections.timings import FILE
from foretrain.prediction.operators.pricing import Floats

_WILD = 1.0
"""Errors beyond e to this power are cut to it: the posterior has heavier tails than the fit."""
_MOST_ROWS = 60.0
_FEWEST_ROWS = 3
_PULL, _TYPICAL = 0.5, math.log(0.02)
_BOUNDS = (math.log(1e-5), math.log(0.5))
_START = math.log(0.01)


def fit_variances(sources: Sequence[Sequence[StepError]], start: Variances | None = None) -> Variances:
    """The variances of the largest marginal likelihood of several sources."""
    from scipy.optimize import minimize

    blocks = [_block(steps) for steps in sources if len(steps) >= _FEWEST_ROWS]
    if len(blocks) < 2:
        raise InvalidRequest(f"variances need at least two sources of {_FEWEST_ROWS} rows, got {len(blocks)}")

    def loss(x: Floats) -> tuple[float, Floats]:
        """Minus the logarithm of the likelihood, and its gradient in the logarithms of the variances."""
        variances = np.exp(x)
        total, slope = _PULL * float(((x - _TYPICAL) ** 2).sum()), 2 * _PULL * (x - _TYPICAL)
        for terms, ratios, weight in blocks:
            covariance = np.tensordot(variances, terms, 1)
            inverse = np.linalg.inv(covariance)
            solved = inverse @ ratios
            quadratic, freedom = float(ratios @ solved), FREEDOM + len(ratios)
            size = freedom * math.log1p(quadratic / FREEDOM) + float(np.linalg.slogdet(covariance)[1])
            total += weight * 0.5 * size
            change = inverse - freedom / (FREEDOM + quadratic) * np.outer(solved, solved)
            slope = slope + weight * 0.5 * variances * (terms * change).sum(axis=(1, 2))
        return total, slope

    first = np.full(len(TERMS), _START) if start is None else np.log(np.maximum(astuple(start), 1e-5))
    options = {"maxiter": 200, "ftol": 1e-10, "gtol": 1e-6}
    best = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=[_BOUNDS] * len(TERMS), options=options)
    return Variances(*np.exp(best.x).tolist())


def _block(steps: Sequence[StepError]) -> tuple[Floats, Floats, float]:
    terms = np.concatenate([shared_terms(steps, steps), np.eye(len(steps))[None]])
    ratios = np.clip([step.log_ratio for step in steps], -_WILD, _WILD)
    return terms, ratios, min(1.0, _MOST_ROWS / len(steps))


def by_source(rows: Sequence[TimedRow]) -> dict[str, list[TimedRow]]:
    """The rows of each source."""
    sources: dict[str, list[TimedRow]] = {}
    for row in rows:
        sources.setdefault(row.source, []).append(row)
    return dict(sorted(sources.items()))


def write_variances(rows: Sequence[TimedRow]) -> Path:
    """Fit and keep the calibration file."""
    sources = by_source(rows)
    variances = fit_variances([[row.error for row in members] for members in sources.values()])
    sets: dict[str, dict[str, int]] = {}
    for name, members in sources.items():
        sets.setdefault(members[0].data_set, {})[name] = len(members)
    return files.write(
        FILE,
        {
            "model": "hierarchical errors of one source",
            "data": [{"source": name, "steps": steps} for name, steps in sets.items()],
            "fitted_on": "log(measured / predicted) of whole steps, maximum marginal likelihood",
            "variance": asdict(variances),
        },
    )


if __name__ == "__main__":
    sys.stdout.write(f"{write_variances(read_rows(Path(sys.argv[1])))}\n")
