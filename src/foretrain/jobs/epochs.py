"""Epochs: what one takes, how many a target needs as the batch grows, and what a batch is worth in a stage.

In a stage of critical batch size B_c, the steps a batch B needs are S(B) = S_min (1 + B_c / B) (S. McCandlish
et al., "An Empirical Model of Large-Batch Training", arXiv:1812.06162), so a step of progress at the
reference batch takes, at another batch,

    seconds = own step seconds · (1 + B_c / B) / (1 + B_c / B_reference)

The critical batch grows as the loss falls: in the steep part large batches are wasted, in the flat tail not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from foretrain.convergence.batch_size import BatchSizeLaw, fit_batch_size_law
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.jobs.options import BatchPoint
from foretrain.prediction.answer import Prediction

"""A global batch, and the epochs it takes to the target."""
_CHECKED_FROM = 3
"""Two points determine the two parameters of the law exactly; a third one leaves a residual."""


class EpochsByBatch(ABC):
    """Epochs at one batch against epochs at another."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The source, as part of a sentence."""

    @property
    @abstractmethod
    def known_batches(self) -> tuple[float, ...]:
        """The batches it was fitted to, ascending; empty if nothing was fitted."""

    @abstractmethod
    def growth(self, batch: float, reference: float) -> Quantiles:
        """E(batch) / E(reference)."""

    def notes_at(self, *batches: float) -> tuple[str, ...]:
        """Caveats at these batches: extrapolation, or too few known batches."""
        known = self.known_batches
        if not known:
            return ()
        notes = [
            f"batch {batch:,.0f} is outside the known batches ({known[0]:,.0f} to {known[-1]:,.0f}): epochs "
            "are extrapolated, and the interval covers less often"
            for batch in batches
            if not known[0] <= batch <= known[-1]
        ]
        if len(known) < _CHECKED_FROM:
            notes.append("two batch sizes leave no residual: a third would narrow the interval")
        return tuple(notes)


@dataclass(frozen=True, slots=True)
class CriticalBatch(EpochsByBatch):
    """E(B) = E_min (1 + B / B_crit): S. McCandlish et al., arXiv:1812.06162.

    Holds for one target and a learning rate tuned at each batch. The critical batch is exact, as given.
    """

    batch: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.batch) and self.batch > 0):
            raise InvalidRequest(f"`critical_batch` must be finite and above 0, got {self.batch:g}")

    @property
    def source(self) -> str:
        """The critical batch."""
        return f"a critical batch of {self.batch:,.0f}"

    @property
    def known_batches(self) -> tuple[float, ...]:
        """Empty: nothing was fitted."""
        return ()

    def growth(self, batch: float, reference: float) -> Quantiles:
        """(1 + B / B_crit) / (1 + B_0 / B_crit)."""
        ratio = (self.batch + batch) / (self.batch + reference)
        return Quantiles(ratio, ratio, ratio)


@dataclass(frozen=True, slots=True)
class FittedEpochs(EpochsByBatch):
    """The law through measured points; its interval is that of leave-one-out prediction."""

    law: BatchSizeLaw

    @property
    def source(self) -> str:
        """The points."""
        return f"the epochs at {len(self.law.batches)} batch sizes"

    @property
    def known_batches(self) -> tuple[float, ...]:
        """Those of the points."""
        return self.law.batches

    def growth(self, batch: float, reference: float) -> Quantiles:
        """The law at one batch over its median at the other; 1 where they are the same."""
        if batch == reference:
            return Quantiles(1.0, 1.0, 1.0)
        return self.law.epochs_at(batch).scale(1 / self.law.epochs_at(reference).p50)


def fit_epochs(points: Iterable[BatchPoint]) -> FittedEpochs:
    """The law through (batch, epochs) points, two or more."""
    listed = tuple(points)
    return FittedEpochs(fit_batch_size_law([batch for batch, _ in listed], [epochs for _, epochs in listed]))


@dataclass(frozen=True, slots=True)
class Epoch:
    """The steps of an epoch, their time, and the bytes of all messages between devices."""

    samples: int
    steps: int
    seconds: Quantiles
    moved_bytes: float


def epoch_of(prediction: Prediction, samples: int) -> Epoch:
    """An epoch of `samples`; the last step may be smaller and counts as a whole one."""
    moved = prediction.parallelism.moved_bytes
    return epoch_in_steps(samples, prediction.update_batch, prediction.step.seconds, moved)


def epoch_in_steps(samples: int, global_batch: int, step: Quantiles, moved_bytes: float) -> Epoch:
    """An epoch of steps of `global_batch` samples."""
    if samples < 1:
        raise InvalidRequest(f"`samples` must be at least 1, got {samples}")
    steps = math.ceil(samples / global_batch)
    return Epoch(samples, steps, step.scale(steps), moved_bytes * steps)


def where_it_flattens(steps: ArrayLike, values: ArrayLike) -> float:
    """The step at which a falling or rising curve is farthest from the straight line between its ends.

    From there on a step makes less progress than the average step. Valid for smooth (e.g. fitted) curves; a
    straight line raises `InvalidRequest`.
    """
    at, height = np.asarray(steps, float), np.asarray(values, float)
    if at.ndim != 1 or at.shape != height.shape or len(at) < 3 or not (np.diff(at) > 0).all():
        raise InvalidRequest("a curve needs three or more points, steps rising, each with its value")
    if not np.isfinite(height).all():
        raise InvalidRequest("a curve needs finite values; remove the others")
    change = height[-1] - height[0]
    if change == 0:
        raise InvalidRequest("the curve ends where it began: it has no steep part")
    ahead = (height - height[0]) / change - (at - at[0]) / (at[-1] - at[0])
    if not ahead.max() > 1e-9:
        raise InvalidRequest("the curve never flattens: it ends at least as steep as it began")
    return float(at[np.argmax(ahead)])


def progress_step_seconds(
    step_seconds: float, batch: float, reference_batch: float, critical_batches: Sequence[float]
) -> tuple[float, ...]:
    """Seconds of a step of progress at the reference batch, trained with `batch`, for each stage."""
    for name, value in (
        ("step_seconds", step_seconds),
        ("batch", batch),
        ("reference_batch", reference_batch),
    ):
        if not (math.isfinite(value) and value > 0):
            raise InvalidRequest(f"{name} must be finite and above 0, got {value}")
    if not all(math.isfinite(critical) and critical >= 0 for critical in critical_batches):
        raise InvalidRequest(f"critical batch sizes must be finite and at least 0, got {critical_batches}")
    return tuple(
        step_seconds * (1 + critical / batch) / (1 + critical / reference_batch)
        for critical in critical_batches
    )
