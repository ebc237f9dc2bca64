"""The steps of a job: as given, by epochs of a data set, or until a training log meets its target.

The length holds at a reference batch B_0, if one is named. At another global batch B

    epochs(B) = epochs(B_0) · growth(B, B_0)        steps(B) = steps(B_0) · B_0 / B · growth(B, B_0)

with the growth of `epochs_by_batch`. Without a reference batch, epochs and steps are the same at every batch.

Asynchronous training with stale gradients needs more updates to make the same progress. The factor of
`convergence.batch_size` applies where the length follows from a target; a given length only gets a note.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrain.convergence.batch_size import KIND, penalty_of
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.jobs.batch_limits import tokens_per_sample
from foretrain.jobs.epochs import CriticalBatch, EpochsByBatch, FittedEpochs, fit_epochs, where_it_flattens
from foretrain.jobs.job import Steps
from foretrain.jobs.options import LengthOptions

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.workloads.workload import Workload


_CURVE_POINTS = 400
"""Points of the extrapolated curve that charts draw."""
_ROUNDING = 1e-12
"""Rounding error of a whole number of steps."""
_GROWTH_FIELDS = "; give `critical_batch` and `reference_batch`, or `epochs_at`, to model how epochs grow"


class Length(ABC):
    """How long a job is at any global batch. Cheap to evaluate.

    `epoch_samples` are the samples of an epoch, if known.
    """

    epoch_samples: int | None

    @abstractmethod
    def steps_at(self, global_batch: int) -> Steps:
        """The steps of a job with `global_batch` samples per step."""

    @property
    @abstractmethod
    def notes_where_batch_is_chosen(self) -> tuple[str, ...]:
        """Caveats where batch sizes are compared by this length."""

    @property
    @abstractmethod
    def flattens_at_share(self) -> float | None:
        """The share of the job after which its curve is flat; None without a log."""


@dataclass(frozen=True)
class KnownLength(Length):
    """Steps, or epochs of `epoch_samples`, at a reference batch or the same at every batch."""

    amount: Quantiles
    source: str
    epoch_samples: int | None = None
    reference_batch: int | None = None
    growth: EpochsByBatch | None = None
    """None: epochs are the same at every batch."""
    flat_after: float | None = None

    def steps_at(self, global_batch: int) -> Steps:
        """By the epochs or samples of the reference batch and how epochs grow."""
        _check_batch(global_batch)
        reference = self.reference_batch or global_batch
        per = reference / global_batch
        if self.epoch_samples is not None:
            per = math.ceil(self.epoch_samples / global_batch)
        if reference == global_batch:
            return Steps(_whole(self.amount.scale(per)), self.source)
        if self.growth is None:
            note = (
                f"from batch {reference:,} to {global_batch:,} at equal epochs; a larger batch usually needs "
                "more: give `critical_batch` or `epochs_at`"
            )
            return Steps(_whole(self.amount.scale(per)), self.source, (note,))
        growth = self.growth.growth(global_batch, reference)
        note = (
            f"batch {global_batch:,} takes {growth.p50:.3g} times the epochs of batch {reference:,}, by "
            f"{self.growth.source}"
        )
        return Steps(
            _whole(self.amount.times(growth).scale(per)),
            f"{self.source}, by {self.growth.source}",
            (note, *self.growth.notes_at(reference, global_batch)),
        )

    @property
    def notes_where_batch_is_chosen(self) -> tuple[str, ...]:
        """That epochs or steps are the same at every batch, unless their growth is given."""
        if self.growth is not None:
            return ()
        if self.epoch_samples is None and self.reference_batch is None:
            return (
                f"the same steps are counted at every batch size{_GROWTH_FIELDS}; or `reference_batch` "
                "alone, for the same number of samples",
            )
        return (f"the same epochs are counted at every batch size{_GROWTH_FIELDS}",)

    @property
    def flattens_at_share(self) -> float | None:
        """The share found in the log, if there is one."""
        return self.flat_after


@dataclass(frozen=True)
class FittedLength(Length):
    """Epochs fitted to points at several batch sizes."""

    epochs: FittedEpochs
    epoch_samples: int

    def steps_at(self, global_batch: int) -> Steps:
        """Epochs of the law, in whole steps per epoch."""
        _check_batch(global_batch)
        epochs = self.epochs.law.epochs_at(global_batch)
        note = (
            f"batch {global_batch:,} takes {epochs.p50:.3g} epochs (80 % between {epochs.p10:.3g} and "
            f"{epochs.p90:.3g}), by {self.epochs.source}"
        )
        return Steps(
            _whole(epochs.scale(math.ceil(self.epoch_samples / global_batch))),
            f"epochs to target by {self.epochs.source}",
            (note, *self.epochs.notes_at(global_batch)),
        )

    @property
    def notes_where_batch_is_chosen(self) -> tuple[str, ...]:
        """None: the steps at each batch have their own."""
        return ()

    @property
    def flattens_at_share(self) -> float | None:
        """Unknown: there is no log."""
        return None


def length_of(request: LengthOptions, workload: Workload | None = None) -> Length | None:
    """The length of the job; None if it is not given. Reads and extrapolates the log once.

    A length in tokens is that of the samples of a workload.
    """
    growth: EpochsByBatch | None = None
    if request.epochs_at:
        growth = fit_epochs(request.epochs_at)
    elif request.critical_batch is not None:
        growth = CriticalBatch(request.critical_batch)
    at = request.reference_batch
    if request.steps is not None:
        return KnownLength(_exactly(request.steps), "steps as given", None, at, growth)
    if request.epochs is not None:
        return KnownLength(_exactly(request.epochs), "epochs as given", request.samples, at, growth)
    if request.tokens is not None:
        samples = _samples_of_tokens(request.tokens, workload)
        return KnownLength(_exactly(1), "tokens as given", samples, at, growth)
    log = request.forecast
    if log is not None:
        from foretrain.convergence.forecast import converge

        return length_to_target(converge(log), request.samples, at, growth)
    if isinstance(growth, FittedEpochs) and request.samples is not None:
        return FittedLength(growth, request.samples)
    return None


def _samples_of_tokens(tokens: float, workload: Workload | None) -> int:
    """The samples that have some number of tokens."""
    each = None if workload is None else tokens_per_sample(workload)
    if each is None:
        name = "this job" if workload is None else workload.source.name
        raise InvalidRequest(
            f"`tokens` is a length for models of tokens, and {name} has none: give `steps`, or `epochs` with "
            "`samples`"
        )
    return math.ceil(tokens / each)


def length_to_target(
    answer: Convergence,
    samples: int | None,
    reference_batch: int | None = None,
    growth: EpochsByBatch | None = None,
) -> KnownLength:
    """The length until a target is met; an epoch of a log in epochs has `samples` samples.

    Without a reference batch the steps of the log are assumed to have the batch size of the job. Where p90 is
    infinite, the job ends at the end of the extrapolation.
    """
    name = f"{answer.target.metric}={answer.target.value:g}"
    if not (answer.reaches and math.isfinite(answer.steps.p50)):
        raise InvalidRequest(f"the job never ends: {name} is not reached. {answer.verdict}")
    in_epochs = answer.unit == "epoch"
    if in_epochs and samples is None:
        raise InvalidRequest("a log in epochs requires `samples`, the samples of an epoch")
    most = max(answer.steps.p50, min(answer.steps.p90, answer.final_step))
    amount = Quantiles(min(answer.steps.p10, answer.steps.p50), answer.steps.p50, most)
    return KnownLength(
        amount,
        f"steps until {name}",
        samples if in_epochs else None,
        reference_batch,
        growth,
        _flat_after(answer),
    )


def _flat_after(answer: Convergence) -> float | None:
    """The share of the way to the target after which the curve is flat; None if it never flattens."""
    steps = np.linspace(answer.log.steps[0], max(answer.steps.p50, answer.seen_steps), _CURVE_POINTS)
    try:
        flat = where_it_flattens(steps, [answer.at(step) for step in steps.tolist()])
    except InvalidRequest:
        return None
    return flat / float(steps[-1])


def _exactly(amount: float) -> Quantiles:
    return Quantiles(amount, amount, amount)


def _whole(steps: Quantiles) -> Quantiles:
    """Exact steps are rounded up; uncertain ones are at least 1."""
    if steps.p10 == steps.p90:
        return _exactly(math.ceil(steps.p50 * (1 - _ROUNDING)))
    return Quantiles(*(max(1.0, count) for count in (steps.p10, steps.p50, steps.p90)))


def _check_batch(global_batch: int) -> None:
    if global_batch < 1:
        raise InvalidRequest(f"`global_batch` must be at least 1, got {global_batch}")


def with_staleness(steps: Steps, mean_staleness: float, to_a_target: bool) -> Steps:
    """The steps where gradients are `mean_staleness` updates old on average; 0 changes nothing."""
    if mean_staleness <= 0:
        return steps
    penalty = penalty_of(mean_staleness)
    bounds = f"{KIND}; theory allows {penalty.p10:.2g} to {penalty.p90:.2g}"
    old = f"gradients are {mean_staleness:.1f} updates old on average:"
    if not to_a_target:
        note = f"{old} the same progress takes {penalty.p50:.2g} times the updates ({bounds})"
        return replace(steps, notes=(*steps.notes, note))
    note = f"{old} {penalty.p50:.2g} times the updates are counted ({bounds})"
    return Steps(
        steps.quantiles.times(penalty), f"{steps.source}, and staleness ({KIND})", (*steps.notes, note)
    )
