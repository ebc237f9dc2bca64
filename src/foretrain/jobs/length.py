"""Length.

The steps of a job: as given, by epochs of a data set, or until a training log meets its target.

What is known holds at a reference batch B_0, if one is named. At another global batch B

    epochs(B) = epochs(B_0) · growth(B, B_0)        steps(B) = steps(B_0) · B_0 / B · growth(B, B_0)

with the growth of `epochs_by_batch`. Without a reference batch, epochs and steps are the same at every batch.

Steps of asynchronous training: stale gradients need more updates to get as far.

The factor is that of `convergence.staleness`. It counts where the length of a job follows from a target; a
length that was given as such is taken at its word, with a note.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrain.convergence.staleness import KIND, penalty_of
from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.jobs.epochs_by_batch import (
    BatchPoint,
    CriticalBatch,
    EpochsByBatch,
    FittedEpochs,
    fitted_epochs,
)
from foretrain.jobs.job import Steps
from foretrain.jobs.stages import where_it_flattens
from foretrain.prediction.independent import product

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.convergence.from_log import LogRequest


_CURVE_POINTS = 400
_ROUNDING = 1e-12
"""A whole number of steps may come out this much larger."""
_SAY_MORE = "; say how epochs depend on batch size: --critical-batch with --reference-batch, or --epochs-at"


@dataclass(frozen=True)
class LengthRequest:
    """What is known of a job's length; exactly one of `steps`, `epochs` and `log` may say it.

    In place of them `epochs_at` may: epochs to target by global batch. With `steps` or `log` and a
    `reference_batch`, at which these hold, the points only say how epochs grow, as a `critical_batch` does.
    """

    steps: int | None = None
    epochs: float | None = None
    samples: int | None = None
    log: LogRequest | None = None
    epochs_at: tuple[BatchPoint, ...] = ()
    critical_batch: float | None = None
    reference_batch: int | None = None

    def __post_init__(self) -> None:
        said = [name for name in ("steps", "epochs", "log") if getattr(self, name) is not None]
        if self.steps is not None and self.steps < 1:
            raise InvalidRequest(f"a job of {self.steps} steps: give at least 1")
        if len(said) > 1 or (self.epochs is not None and self.epochs_at):
            raise InvalidRequest(
                "say the length of the job once: --steps, or --epochs, or --epochs-at, or --target with --log"
            )
        if self.epochs is not None and not (math.isfinite(self.epochs) and self.epochs > 0):
            raise InvalidRequest(f"{self.epochs:g} epochs: give a finite number above 0")
        if self.samples is not None and self.samples < 1:
            raise InvalidRequest(f"an epoch of {self.samples} samples: give at least 1")
        if self.samples is None and (self.epochs is not None or (self.epochs_at and not said)):
            option = "--epochs" if self.epochs is not None else "--epochs-at"
            raise InvalidRequest(f"{option} wants --samples, the samples of an epoch; or give --steps")
        self._check_batches(bool(said))

    def _check_batches(self, holds_at_a_batch: bool) -> None:
        reference = self.reference_batch
        if reference is not None and reference < 1:
            raise InvalidRequest(f"a reference batch of {reference} samples: give at least 1")
        if self.critical_batch is not None and self.epochs_at:
            raise InvalidRequest("--critical-batch and --epochs-at say the same thing: give one of them")
        if self.critical_batch is not None and reference is None:
            raise InvalidRequest(
                "--critical-batch wants --reference-batch, the global batch at which the length holds"
            )
        if reference is not None and not holds_at_a_batch:
            raise InvalidRequest(
                "--reference-batch is the global batch of --steps, --epochs or --log: give one of them"
                + (", or leave it out: --epochs-at names its own batch sizes" if self.epochs_at else "")
            )
        if self.epochs_at and holds_at_a_batch and reference is None:
            raise InvalidRequest(
                "--epochs-at beside --steps or --log wants --reference-batch, the global batch of these"
            )

    @property
    def is_to_a_target(self) -> bool:
        """Whether the job ends when it is good enough, and not after so many steps."""
        return self.log is not None or bool(self.epochs_at) or self.critical_batch is not None

    @property
    def is_known(self) -> bool:
        """Whether anything says how long the job is."""
        return bool(self.epochs_at) or any(said is not None for said in (self.steps, self.epochs, self.log))


class Length(ABC):
    """How long a job is, at any global batch. Cheap to ask."""

    @abstractmethod
    def steps_at(self, global_batch: int) -> Steps:
        """The steps of a job whose steps have so many samples."""

    @property
    @abstractmethod
    def notes_where_batch_is_chosen(self) -> tuple[str, ...]:
        """What a reader should know where batch sizes are compared by this length."""

    @property
    @abstractmethod
    def flattens_at_share(self) -> float | None:
        """The share of the job after which its curve is flat, where a log says so."""


@dataclass(frozen=True)
class KnownLength(Length):
    """An amount of steps, or of epochs of so many samples, at a reference batch or at any batch alike."""

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
                "more: --critical-batch or --epochs-at say how many"
            )
            return Steps(_whole(self.amount.scale(per)), self.source, (note,))
        growth = self.growth.growth(global_batch, reference)
        note = (
            f"batch {global_batch:,} takes {growth.p50:.3g} times the epochs of batch {reference:,}, by "
            f"{self.growth.source}"
        )
        return Steps(
            _whole(product(self.amount, growth).scale(per)),
            f"{self.source}, by {self.growth.source}",
            (note, *self.growth.notes_at(reference, global_batch)),
        )

    @property
    def notes_where_batch_is_chosen(self) -> tuple[str, ...]:
        """That epochs or steps are the same at every batch, where nothing says how they grow."""
        if self.growth is not None:
            return ()
        if self.epoch_samples is None and self.reference_batch is None:
            return (
                f"the same steps are counted at every batch size{_SAY_MORE}; or --reference-batch alone, for "
                "as many samples as there",
            )
        return (f"the same epochs are counted at every batch size{_SAY_MORE}",)

    @property
    def flattens_at_share(self) -> float | None:
        """As the log says, if there was one."""
        return self.flat_after


@dataclass(frozen=True)
class FittedLength(Length):
    """Epochs by one's own points at several batch sizes."""

    epochs: FittedEpochs
    epoch_samples: int

    def steps_at(self, global_batch: int) -> Steps:
        """Epochs of the law, in whole steps an epoch."""
        _check_batch(global_batch)
        needed = self.epochs.law.epochs_at(global_batch)
        note = (
            f"batch {global_batch:,} takes {needed.p50:.3g} epochs (80 % between {needed.p10:.3g} and "
            f"{needed.p90:.3g}), by {self.epochs.source}"
        )
        return Steps(
            _whole(needed.scale(math.ceil(self.epoch_samples / global_batch))),
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


def length_of(request: LengthRequest) -> Length | None:
    """How long the job is; None if nothing says it. Reads and extends the log, once."""
    growth: EpochsByBatch | None = None
    if request.epochs_at:
        growth = fitted_epochs(request.epochs_at)
    elif request.critical_batch is not None:
        growth = CriticalBatch(request.critical_batch)
    at = request.reference_batch
    if request.steps is not None:
        return KnownLength(_exactly(request.steps), "steps as given", None, at, growth)
    if request.epochs is not None:
        return KnownLength(_exactly(request.epochs), "epochs as given", request.samples, at, growth)
    if request.log is not None:
        from foretrain.convergence.from_log import converge

        return length_to_target(converge(request.log), request.samples, at, growth)
    if isinstance(growth, FittedEpochs) and request.samples is not None:
        return FittedLength(growth, request.samples)
    return None


def steps_of(request: LengthRequest, global_batch: int) -> Steps | None:
    """The steps of a job whose steps have so many samples; None if nothing says them."""
    length = length_of(request)
    return None if length is None else length.steps_at(global_batch)


def length_to_target(
    answer: Convergence,
    samples: int | None,
    reference_batch: int | None = None,
    growth: EpochsByBatch | None = None,
) -> KnownLength:
    """The length until a target is met, in all; an epoch of a log in epochs is as long as this data set.

    Without a reference batch the log's steps are taken to be of the same batch size as the job's. Where p90
    is never, the job ends at the end looked at.
    """
    name = f"{answer.target.metric}={answer.target.value:g}"
    if not (answer.reaches and math.isfinite(answer.steps.p50)):
        raise InvalidRequest(f"the job has no known end: {name} is not met. {answer.verdict}")
    in_epochs = answer.unit == "epoch"
    if in_epochs and samples is None:
        raise InvalidRequest("the log counts epochs: give --samples, the samples of an epoch")
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
    """Steps known exactly are rounded up; of others there is at least one."""
    if steps.p10 == steps.p90:
        return _exactly(math.ceil(steps.p50 * (1 - _ROUNDING)))
    return Quantiles(*(max(1.0, count) for count in (steps.p10, steps.p50, steps.p90)))


def _check_batch(global_batch: int) -> None:
    if global_batch < 1:
        raise InvalidRequest(f"a global batch of {global_batch} samples: give at least 1")


def with_staleness(steps: Steps, mean_staleness: float, to_a_target: bool) -> Steps:
    """The same job where gradients are so many updates old on average; fresh ones change nothing."""
    if mean_staleness <= 0:
        return steps
    penalty = penalty_of(mean_staleness)
    bounds = f"{KIND}; theory allows {penalty.p10:.2g} to {penalty.p90:.2g}"
    old = f"gradients are {mean_staleness:.1f} updates old on average:"
    if not to_a_target:
        note = f"{old} to get as far as with fresh ones takes {penalty.p50:.2g} times the updates ({bounds})"
        return replace(steps, notes=(*steps.notes, note))
    note = f"{old} {penalty.p50:.2g} times the updates are counted ({bounds})"
    return Steps(
        product(steps.quantiles, penalty), f"{steps.source}, and staleness ({KIND})", (*steps.notes, note)
    )
