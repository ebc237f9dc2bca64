"""Which technique, with which hyper-parameters: chosen by cross-validation, judged on rows left out of it.

For every fold of a split, hyper-parameters are chosen within its training rows by the same kind of split, the
technique is fitted to these rows with them, and its errors on the rows left out are reported. Everything that
is learned, features included, is learned from the training rows. The ranking is by the error inside the
training rows; the held-out error is never used to choose.

A split leaves out rows at random, or everything beyond what was timed. The named extrapolations are the four
of Gianniti et al. 2019 (`techniques/linear.py`): larger batches, more GPUs, a GPU that was never timed,
deeper networks. Along a number, the largest third of its values is left out (at least one); of categories,
each one in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.learning.regression.columns import BATCH, DEPTH, DEVICE, GFLOP, GPUS, Feature
from foretrain.learning.regression.table import Sample
from foretrain.learning.regression.techniques._base import Parameters, Technique
from foretrain.prediction.operators.pricing import Floats
from foretrain.ties import first_of_least, round_digits

RANDOM, ALL, COLUMN = "random", "all", "column="
EXTRAPOLATIONS: Mapping[str, tuple[str, ...]] = {
    "batch-size": (BATCH,),
    "gpu-count": (GPUS,),
    "compute-power": (DEVICE, GFLOP),
    "inner-modules": (DEPTH,),
}
"""The named extrapolations, and the roles of the column that each leaves out by; the first one counts."""
_EACH_VALUE = frozenset({"compute-power"})
FOLDS = 5
_SEED = 0
_LEAST_TRAINED = 2
"""One row has no slope."""
_SAME_ERROR = 1e-6
"""Mean relative errors that differ by less are equal: the first of a grid, the first by name is taken."""
_WORKERS = 2
_WORTH_WORKERS_SECONDS = 4.0
"""Estimated work below which starting other processes takes longer than it saves."""


class Fold(NamedTuple):
    """Rows to fit and rows to judge on."""

    train: NDArray[np.int64]
    test: NDArray[np.int64]
    left_out: str


def folds(sample: Sample, split: str, count: int = FOLDS) -> tuple[Fold, ...]:
    """The folds of a split; an error says what the table lacks for it."""
    if split == RANDOM:
        return random_folds(sample, count)
    feature = _feature(sample, split)
    values = sample.column(feature.name)
    different = np.unique(values)
    if len(different) < 2:
        raise InvalidRequest(f"split {split} needs two or more values of {feature.name!r}")
    if feature.is_text or split in _EACH_VALUE:
        made = [
            _fold(values == value, f"{feature.name} {_named(feature, float(value))}") for value in different
        ]
    else:
        kept = len(different) - max(1, round(len(different) / 3))
        made = [_fold(values > different[kept - 1], f"{feature.name} above {different[kept - 1]:g}")]
    usable = tuple(fold for fold in made if len(fold.train) >= _LEAST_TRAINED)
    if not usable:
        raise InvalidRequest(
            f"split {split} leaves fewer than {_LEAST_TRAINED} rows to fit; give more rows at other values "
            f"of {feature.name!r}"
        )
    return usable


def inner_folds(sample: Sample, split: str) -> tuple[Fold, ...]:
    """The same question asked of fewer rows, to choose by; at random where they do not allow it."""
    try:
        return folds(sample, split, 3)
    except InvalidRequest:
        return random_folds(sample, 3)


def random_folds(sample: Sample, count: int) -> tuple[Fold, ...]:
    """Every row is left out once, in one of `count` parts; one at a time where there are fewer rows."""
    order = np.random.default_rng(_SEED).permutation(len(sample))
    parts = np.array_split(order, min(count, len(sample)))
    return tuple(
        Fold(np.sort(np.setdiff1d(order, part)), np.sort(part), f"part {number} of {len(parts)}")
        for number, part in enumerate(parts, 1)
    )


def possible_splits(sample: Sample) -> tuple[str, ...]:
    """The splits that the columns of a sample allow."""
    allowed = [RANDOM]
    for split in EXTRAPOLATIONS:
        try:
            folds(sample, split)
        except InvalidRequest:
            continue
        allowed.append(split)
    return tuple(allowed)


def _feature(sample: Sample, split: str) -> Feature:
    if split.startswith(COLUMN):
        name = split.removeprefix(COLUMN)
        if name not in sample.schema.names:
            raise UnknownName("column that varies", name, sample.schema.names)
        return sample.schema.features[sample.schema.place(name)]
    if split not in EXTRAPOLATIONS:
        known = (RANDOM, *EXTRAPOLATIONS, f"{COLUMN}NAME")
        raise UnknownName("split", split, known, f"Splits: {', '.join(known)}")
    for role in EXTRAPOLATIONS[split]:
        feature = sample.schema.with_role(role)
        if feature is not None:
            return feature
    raise InvalidRequest(
        f"split {split} needs a column {' or '.join(map(repr, EXTRAPOLATIONS[split]))} that varies; these "
        f"do: {', '.join(sample.schema.names)}"
    )


def _fold(is_out: NDArray[np.bool_], left_out: str) -> Fold:
    return Fold(np.flatnonzero(~is_out), np.flatnonzero(is_out), left_out)


def _named(feature: Feature, value: float) -> str:
    return feature.categories[int(value)] if feature.is_text else f"{value:g}"


def relative_errors(measured: Floats, predicted: Floats) -> Floats:
    """|predicted / measured - 1|."""
    return np.abs(predicted / measured - 1)


Progress = Callable[[str], None]


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
        results.append(_judge_technique(sample, split, outer, technique))
    return tuple(sorted(results, key=lambda each: _rank(each.selection_error)))  # ties: in the order chosen


def _rank(error: float) -> float:
    """An error to six digits, and to a millionth: exact techniques are equally good, not by rounding."""
    if not np.isfinite(error):
        return error
    return float(round_digits(np.array([round(error / _SAME_ERROR) * _SAME_ERROR]), 6)[0])


def _judge_technique(sample: Sample, split: str, outer: Sequence[Fold], technique: Technique) -> Judged:
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
