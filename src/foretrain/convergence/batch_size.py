"""How the batch size and the staleness of gradients change the steps that training needs.

How much training a larger batch costs: epochs to target against batch size, and the critical batch size.

    E(B) = a + c B = a (1 + B / B_crit),    steps(B) = E(B) · samples / B

Up to B_crit = a / c a larger batch saves steps nearly in proportion; beyond it, it saves little
(S. McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162, where
E/E_min = 1 + B/B_crit). Where points are known on both sides of a batch size, they may say more than the
straight line through all: which of the two, or both in equal parts, counts is decided by predicting each
point from the others.

What stale gradients cost: more steps to the same loss, when workers do not wait for each other.

Of P workers that do not wait for each other, an update is on average τ = P - 1 updates old (S. Dutta et al.,
"Slow and Stale Gradients Can Win the Race", AISTATS 2018, section 2).

How many more steps staleness takes depends on the loss and the learning rate. Theory gives its limits: none
while τ is small against the steps (X. Lian et al., "Asynchronous Parallel Stochastic Gradient for Nonconvex
Optimization", NIPS 2015), and 1 + τ where the learning rate must be divided by the staleness to be stable
(W. Zhang et al., "Staleness-aware Async-SGD", IJCAI 2016). The middle, √(1 + τ), is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest
from foretrain.estimates import Z90, Quantiles

_LEAST_SPREAD = 0.01
"""No fit of epochs is better than 1 %, even where few points leave no residual."""
_LINE_SHARES = (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class BatchSizeLaw:
    """Epochs (or samples) to a target over batch size: the straight line, and the points it rests on."""

    batches: tuple[float, ...]
    epochs: tuple[float, ...]
    intercept: float
    slope: float
    spread: float = 0.0
    """Root mean square of ln(true / predicted) when each point is predicted from the others."""
    line_share: float = 0.0
    """How much the line counts against the neighbours' points: 0, a half or 1."""

    @property
    def critical_batch(self) -> float:
        """The batch at which twice the least epochs are needed: a / c."""
        return self.intercept / self.slope if self.slope > 0 else math.inf

    def line(self, batch: float) -> float:
        """a + c B."""
        return self.intercept + self.slope * batch

    def epochs_at(self, batch: float) -> Quantiles:
        """Epochs to target with their interval."""
        if not batch > 0:
            raise InvalidRequest(f"a batch of {batch:g} samples; give at least 1")
        middle = _between(self, batch)
        factor = math.exp(Z90 * self.spread)
        return Quantiles(middle / factor, middle, middle * factor)

    def steps_at(self, batch: float, samples: float) -> Quantiles:
        """Steps to target for a data set of `samples`."""
        return self.epochs_at(batch).scale(samples / batch)

    def efficiency(self, batch: float, reference: float) -> float:
        """Progress of a sample at `batch` against one at `reference`: E(reference) / E(batch)."""
        return self.epochs_at(reference).p50 / self.epochs_at(batch).p50


def fit_batch_size_law(batches: Sequence[float], epochs: Sequence[float]) -> BatchSizeLaw:
    """E = a + c B through the points, relative errors least, a and c at least 0."""
    order = np.argsort(batches)
    sizes, needed = np.asarray(batches, float)[order], np.asarray(epochs, float)[order]
    if (
        len(sizes) < 2
        or len(set(sizes.tolist())) != len(sizes)
        or not (sizes > 0).all()
        or not (needed > 0).all()
    ):
        raise InvalidRequest("`epochs_at` needs two or more batch sizes, all different, with epochs above 0")
    if len(sizes) < 3:
        return _law(sizes, needed, 0.0, math.log(2))  # two points: no third to be wrong on
    errors = {share: _left_out(sizes, needed, share) for share in _LINE_SHARES}
    share = min(errors, key=lambda item: float(np.median(np.abs(errors[item]))))
    spread = float(np.sqrt(np.mean(np.square(errors[share]))))
    return _law(sizes, needed, share, max(_LEAST_SPREAD, spread))


def _law(sizes: Floats, needed: Floats, line_share: float, spread: float = 0.0) -> BatchSizeLaw:
    line = _line(sizes, needed)
    return BatchSizeLaw(tuple(sizes.tolist()), tuple(needed.tolist()), *line, spread, line_share)


def _line(sizes: Floats, needed: Floats) -> tuple[float, float]:
    rows = np.stack([np.ones_like(sizes), sizes], axis=1) / needed[:, None]
    both = np.linalg.lstsq(rows, np.ones(len(sizes)), rcond=None)[0]
    if both[1] < 0:  # a larger batch never needs fewer epochs
        return float(rows[:, 0].sum() / (rows[:, 0] ** 2).sum()), 0.0
    if both[0] < 0:
        return 0.0, float(rows[:, 1].sum() / (rows[:, 1] ** 2).sum())
    return float(both[0]), float(both[1])


def _between(law: BatchSizeLaw, batch: float) -> float:
    """Between the neighbours' points, or along the line from the outermost one; mixed with the line."""
    sizes, needed = np.array(law.batches), np.array(law.epochs)
    if sizes[0] <= batch <= sizes[-1]:
        points = float(np.interp(batch, sizes, needed))
    else:
        nearest = 0 if batch < sizes[0] else -1
        points = float(law.line(batch) / law.line(float(sizes[nearest])) * needed[nearest])
    return float(points ** (1 - law.line_share) * law.line(batch) ** law.line_share)


def _left_out(sizes: Floats, needed: Floats, line_share: float) -> Floats:
    """ln(true / predicted) of each point, predicted from the others."""
    errors = []
    for index in range(len(sizes)):
        kept = np.arange(len(sizes)) != index
        predicted = _between(_law(sizes[kept], needed[kept], line_share), float(sizes[index]))
        errors.append(math.log(needed[index] / predicted))
    return np.array(errors)


KIND = "assumed"
"""What the middle of the penalty rests on: no public measurement here says more."""


def penalty_of(mean_staleness: float) -> Quantiles:
    """Factor on the updates to target for gradients of a mean age in updates, against fresh ones."""
    most = 1 + mean_staleness
    return Quantiles(1.0, math.sqrt(most), most)
