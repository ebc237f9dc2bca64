"""Which technique, with which hyper-parameters: chosen by cross-validation, judged on rows left out of it.

For every fold of a split, hyper-parameters are chosen within its training rows by the same kind of split, the
technique is fitted to these rows with them, and its errors on the rows left out are reported. Everything that
is learned, features included, is learned from the training rows. The ranking is by the error inside the
training rows; the held-out error is never used to choose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.learning.regression.splits import Fold, folds, inner_folds, relative_errors
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import Parameters, Technique
from foretrain.prediction.operators.listing import Floats
from foretrain.ties import first_of_least, round_digits

Progress = Callable[[str], None]
_SAME_ERROR = 1e-6
"""Mean relative errors that differ by less are equal: the first of a grid, the first by name is taken."""
_WORKERS = 2
_WORTH_WORKERS_SECONDS = 4.0
"""Estimated work below which starting other processes takes longer than it saves."""


@dataclass(frozen=True, eq=False)
class Judged:
    """One technique on one split.

    `selection_error` is its mean relative error inside the training rows, `parameters` those that all folds
    of the whole sample prefer. `predicted` are its predictions of the rows left out, NaN for all others.
    """

    technique: str
    split: str
    parameters: Parameters
    selection_error: float
    predicted: Floats

    def errors(self, sample: Sample) -> Floats:
        """Relative errors of the rows left out."""
        out = np.isfinite(self.predicted)
        return relative_errors(sample.measured[out], self.predicted[out])


@dataclass(frozen=True, eq=False)
class _Task:
    technique: Technique
    parameters: Parameters
    sample: Sample
    fold: Fold

    def __call__(self) -> Floats:
        """Predictions of the rows left out."""
        fitted = self.technique.fit(self.sample.take(self.fold.train), self.parameters)
        return fitted.predict(self.sample.rows[self.fold.test])


def judge(
    sample: Sample, split: str, chosen: Sequence[Technique], progress: Progress = lambda _: None
) -> tuple[Judged, ...]:
    """All techniques on one split, the best of the training rows first."""
    outer = folds(sample, split)
    results = []
    for number, technique in enumerate(chosen, 1):
        progress(f"{split}: {technique.name}, {number} of {len(chosen)}")
        results.append(_judged(sample, split, outer, technique))
    return tuple(sorted(results, key=lambda each: _rank(each.selection_error)))  # ties: in the order chosen


def _rank(error: float) -> float:
    """An error to six digits, and to a millionth: exact techniques are equally good, not by rounding."""
    if not np.isfinite(error):
        return error
    return float(round_digits(np.array([round(error / _SAME_ERROR) * _SAME_ERROR]), 6)[0])


def _judged(sample: Sample, split: str, outer: Sequence[Fold], technique: Technique) -> Judged:
    grid = technique.grid()
    inner = [(fold, inner_folds(sample.take(fold.train), split)) for fold in outer]
    tasks = {
        (place, number, index): _Task(technique, parameters, sample.take(fold.train), each)
        for place, parameters in enumerate(grid)
        for number, (fold, parts) in enumerate(inner)
        for index, each in enumerate(parts)
    }
    tasks |= {
        (place, number, -1): _Task(technique, parameters, sample, fold)
        for place, parameters in enumerate(grid)
        for number, fold in enumerate(outer)
    }
    made = _run(tasks)
    predicted = np.full(len(sample), np.nan)
    errors = []
    for number, (fold, parts) in enumerate(inner):
        measured = sample.measured[fold.train]
        inside = [
            _mean_error(
                [(measured[part.test], made[place, number, index]) for index, part in enumerate(parts)]
            )
            for place in range(len(grid))
        ]
        best = first_of_least(inside, _SAME_ERROR)
        errors.append(inside[best])
        predicted[fold.test] = made[best, number, -1]
    whole = [
        _mean_error([(sample.measured[fold.test], made[place, n, -1]) for n, fold in enumerate(outer)])
        for place in range(len(grid))
    ]
    parameters = grid[first_of_least(whole, _SAME_ERROR)]
    return Judged(technique.name, split, parameters, float(np.mean(errors)), predicted)


def _mean_error(pairs: Sequence[tuple[Floats, Floats]]) -> float:
    errors = np.concatenate([relative_errors(measured, predicted) for measured, predicted in pairs])
    return float(errors.mean()) if np.isfinite(errors).all() else float("inf")


def _run(tasks: Mapping[tuple[int, int, int], _Task]) -> dict[tuple[int, int, int], Floats]:
    """All tasks, in two processes if the first suggests that this is quicker."""
    keys = list(tasks)
    started = time.perf_counter()
    made = {keys[0]: tasks[keys[0]]()}
    expected = (time.perf_counter() - started) * (len(keys) - 1)
    rest = keys[1:]
    if expected < _WORTH_WORKERS_SECONDS or len(rest) < _WORKERS:
        return made | {key: tasks[key]() for key in rest}
    from joblib import Parallel, delayed

    results = Parallel(n_jobs=_WORKERS)(delayed(_call)(tasks[key]) for key in rest)
    return made | dict(zip(rest, results, strict=True))


def _call(task: _Task) -> Floats:
    return task()


def conformal_factors(measured: Floats, predicted: Floats) -> tuple[float, float]:
    """10th and 90th percentile of measured / predicted on rows left out, for the rows to come.

    Split conformal prediction: the k-th of n ratios with k = (n + 1) · 0.1 and (n + 1) · 0.9, rounded
    outwards; with fewer than nine ratios, the smallest and the largest. Reference: J. Lei et al.,
    "Distribution-free predictive inference for regression", JASA 113, 2018.
    """
    known = np.isfinite(predicted) & (predicted > 0)
    ratios = np.sort(measured[known] / predicted[known])
    count = len(ratios)
    if not count:
        return 1.0, 1.0
    low = max(int(np.floor((count + 1) * 0.1)) - 1, 0)
    high = min(int(np.ceil((count + 1) * 0.9)) - 1, count - 1)
    return min(1.0, float(ratios[low])), max(1.0, float(ratios[high]))
