"""What the suites of whole steps share: leaving groups out, intervals from honest residuals, worst cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from foretrain.estimates import Quantiles
from foretrain.prediction.operators.pricing import Flags, Floats
from validation.report import Case

WORST = 10


def leave_out(groups: Sequence[str], count: int, predict: Callable[[Flags, str], Floats]) -> Floats:
    """Predictions of every case by `predict(others, group)`, which may use the cases of other groups only."""
    labels = np.array(groups)
    predicted = np.full(count, np.nan)
    for group in sorted(set(groups)):
        here = labels == group
        predicted[here] = predict(~here, group)[here]
    return predicted


def intervals(
    groups: Sequence[str], measured: Floats, predicted: Floats, kinds: Sequence[str] | None = None
) -> list[Quantiles]:
    """80 % intervals from the residuals of the other groups, all of them predicted unseen.

    With `kinds`, from the residuals of the same kind. A group never seen adds an offset of its own to what
    the others scatter: their spread counts √(1 + 1/groups) times.
    """
    labels, sorts = np.array(groups), np.array(kinds or [""] * len(groups))
    off = np.log(measured / predicted)
    bounds = [Quantiles(0.0, 0.0, 0.0)] * len(labels)
    for group, kind in sorted(set(zip(groups, sorts.tolist(), strict=True))):
        here, others = (labels == group) & (sorts == kind), (labels != group) & (sorts == kind)
        widening = math.sqrt(1 + 1 / len(set(labels[others].tolist())))
        low, high = (widening * np.quantile(off[others], [0.1, 0.9])).tolist()
        for index in np.flatnonzero(here).tolist():
            value = float(predicted[index])
            below, above = math.exp(min(low, 0.0)), math.exp(max(high, 0.0))
            bounds[index] = Quantiles(value * below, value, value * above)
    return bounds


def worst(cases: Sequence[Case], method: str, reason: Callable[[Case], str]) -> str:
    """The ten cases a method is furthest off on, each with the reason."""
    ordered = sorted(cases, key=lambda case: -abs(case.predicted[method] / case.measured - 1))[:WORST]
    listed = (
        f"{case.name} {case.predicted[method] / case.measured - 1:+.0%} ({reason(case)})" for case in ordered
    )
    return "; ".join(listed)


def by_group(cases: Sequence[Case]) -> Mapping[str, list[Case]]:
    """Cases by what the split left out."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return dict(sorted(groups.items()))
