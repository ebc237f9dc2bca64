"""What is left out to judge a model: rows at random, or everything beyond what was timed.

The named extrapolations are the four questions of the seed: a larger batch, more GPUs, a computing power that
was never timed, a deeper network. Along a number, the largest third of its values is left out (at least one);
of categories, each one in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.learning.regression.columns import BATCH, DEPTH, DEVICE, GFLOP, GPUS, Feature
from foretrain.learning.regression.table import Sample
from foretrain.prediction.operators.listing import Floats

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


@dataclass(frozen=True, eq=False)
class Fold:
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
