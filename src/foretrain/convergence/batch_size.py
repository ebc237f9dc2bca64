"""How the batch size and the staleness of gradients change the steps that training needs.

Gradient noise: how much more a larger batch gets done in a step, from statistics of the gradients.

With |G|² the squared norm of the mean gradient and σ² the variance of a gradient over `reference` samples, a
step over `scale` times as many samples does the work of

    gain = (σ² + |G|²) / (σ² / scale + |G|²)

reference steps (A. Qiao et al., "Pollux", OSDI 2021, eq. 7, after T. Johnson et al., "AdaScale SGD", 2020).
B_crit = reference · σ² / |G|² is the simple noise scale of McCandlish et al., arXiv:1812.06162.

How much training a larger batch costs: epochs to target against batch size, and the critical batch size.

    E(B) = a + c B = a (1 + B / B_crit),    steps(B) = E(B) · samples / B

Up to B_crit = a / c a larger batch saves steps nearly in proportion; beyond it, it saves little
(S. McCandlish et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162, where
E/E_min = 1 + B/B_crit). Where points are known on both sides of a batch size, they may say more than the
straight line through all: which of the two, or both in equal parts, counts is decided by predicting each
point from the others.

What stale gradients cost: more steps to the same loss, when workers do not wait for each other.

Of P workers a server waits for the first K gradients of an update. In K-sync the others are thrown away:
nothing is stale, the batch is K/P of the whole. In K-async they go on, and an update is on average
τ = P/K - 1 updates old; K = 1 is plain asynchronous training (S. Dutta et al., "Slow and Stale Gradients Can
Win the Race", AISTATS 2018, section 2).

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
from foretrain.estimates import Quantiles
from foretrain.probability import Z90


@dataclass(frozen=True)
class GradientNoise:
    """Statistics of the gradients of batches of `reference` samples."""

    reference: float
    squared_norm: float
    variance: float

    def __post_init__(self) -> None:
        if not (self.reference > 0 and self.squared_norm >= 0 and self.variance >= 0):
            raise InvalidRequest("gradient statistics: batch above 0, squared norm and variance at least 0")
        if self.squared_norm + self.variance == 0:
            raise InvalidRequest("gradient statistics are all 0: nothing is learnt")

    @property
    def critical_batch(self) -> float:
        """B_crit: at this batch half of a perfect gain is left."""
        return self.reference * self.variance / self.squared_norm if self.squared_norm else float("inf")

    def gain(self, batch: float) -> float:
        """Reference steps done by one step at `batch`."""
        scale = batch / self.reference
        return (self.variance + self.squared_norm) / (self.variance / scale + self.squared_norm)

    def efficiency(self, batch: float) -> float:
        """Progress of a sample against one in a reference batch: gain / scale."""
        return self.gain(batch) * self.reference / batch

    def steps(self, batch: float, reference_steps: float) -> float:
        """Steps at `batch` for what takes `reference_steps` at the reference."""
        return reference_steps / self.gain(batch)


def steps_over_run(progress: Floats, ratios: Floats, reference: float, batch: float, total: float) -> float:
    """Steps at `batch` for `total` reference steps, noise changing on the way.

    `ratios` are σ²/|G|² (of reference batches) at the progress points, of any one run of the task.
    """
    grid = np.linspace(0.0, total, 513)
    noise = np.interp(0.5 * (grid[1:] + grid[:-1]), progress, ratios)
    scale = batch / reference
    gains = (noise + 1) / (noise / scale + 1)
    return float((np.diff(grid) / gains).sum())


_LEAST_SPREAD = 0.01
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


def power_law_epochs(batches: Sequence[float], epochs: Sequence[float], batch: float) -> float:
    """E = a B^p through the points, in logarithms: the usual rival of the straight line."""
    slope, start = np.polyfit(np.log(batches), np.log(epochs), 1)
    return float(np.exp(start + slope * np.log(batch)))


KIND = "assumed"
"""What the middle of the penalty rests on: no public measurement here says more."""


@dataclass(frozen=True)
class Waiting:
    """How many of the workers' gradients an update waits for, and whether late ones are used."""

    workers: int
    waits_for: int
    uses_late: bool

    def __post_init__(self) -> None:
        if not 1 <= self.waits_for <= self.workers:
            raise InvalidRequest(f"an update cannot wait for {self.waits_for} of {self.workers} workers")

    @property
    def mean_staleness(self) -> float:
        """Updates between reading the weights and using the gradient: P/K - 1; 0 if late ones are dropped."""
        return self.workers / self.waits_for - 1 if self.uses_late else 0.0

    @property
    def batch_share(self) -> float:
        """Share of the whole batch in one update."""
        return self.waits_for / self.workers


def staleness_penalty(waiting: Waiting) -> Quantiles:
    """Factor on the updates to target, against fresh gradients at the same batch an update."""
    return penalty_of(waiting.mean_staleness)


def penalty_of(mean_staleness: float) -> Quantiles:
    """The same for gradients of a mean age in updates."""
    most = 1 + mean_staleness
    return Quantiles(1.0, math.sqrt(most), most)
