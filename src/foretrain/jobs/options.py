"""What may be chosen about a whole job: its length, its batches, and how it is run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from foretrain.convergence.options import LogContext, LogRequest
from foretrain.decoding import (
    BANDWIDTH,
    COUNT,
    DURATION,
    FILE,
    MONEY,
    SWITCH,
    TEXT,
    OptionKind,
    Unreadable,
    number,
    option,
    part,
    whole_number,
)
from foretrain.errors import InvalidRequest
from foretrain.panels import JOB, LENGTH, MONEY_AND_ENERGY, STEP
from foretrain.prediction.options import BatchDivision
from foretrain.workloads.options import BatchOption

BatchPoint = tuple[int, float]
"""A global batch, and the epochs to target at it."""


def parse_batch_point(text: str) -> BatchPoint:
    """BATCH=EPOCHS, as a user writes it."""
    batch, _, epochs = text.partition("=")
    try:
        point = int(batch), float(epochs)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not BATCH=EPOCHS, e.g. 4096=64") from None
    if point[0] < 1 or not (math.isfinite(point[1]) and point[1] > 0):
        raise InvalidRequest(f"{text!r}: the batch must be at least 1 and the epochs finite and above 0")
    return point


def _read_points(value: Any) -> tuple[BatchPoint, ...]:
    """Points from text or, in Python, from pairs of numbers."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise Unreadable
    points: list[BatchPoint] = []
    for item in items:
        if isinstance(item, str):
            points += [parse_batch_point(text.strip()) for text in item.split(",") if text.strip()]
        else:
            batch, epochs = item
            points.append(parse_batch_point(f"{batch}={epochs}"))
    return tuple(points)


@dataclass(frozen=True, kw_only=True)
class LengthOptions(LogContext):
    """The length of a job, given by at most one of `steps`, `epochs`, `tokens` and `log`.

    `epochs_at` (epochs to target by global batch) may take their place. Together with `steps` or `log` and
    their `reference_batch`, its points only state how epochs grow, as `critical_batch` does.
    """

    samples: int | None = option(whole_number(1), "Samples per epoch.", panel=LENGTH)
    epochs: float | None = option(number(above=0), "Number of epochs; requires `samples`.", panel=LENGTH)
    steps: int | None = option(whole_number(1), "Number of training steps.", panel=LENGTH)
    tokens: float | None = option(
        COUNT, "Number of tokens to train on, e.g. 15T, 300B or 100M.", panel=LENGTH, metavar="COUNT"
    )
    target: str | None = option(
        TEXT,
        "Train until METRIC reaches VALUE, extrapolated from `log`.",
        panel=LENGTH,
        metavar="METRIC=VALUE",
    )
    log: Path | None = option(FILE, "Training log used to predict the steps to `target`.", panel=LENGTH)
    epochs_at: tuple[BatchPoint, ...] = option(
        OptionKind(
            "POINTS",
            "BATCH=EPOCHS, once for each batch",
            _read_points,
            "str | Sequence[str | tuple[int, float]]",
            many=True,
        ),
        "Epochs to target at a given global batch size, for two or more of them; replaces `epochs`.",
        default=(),
        panel=LENGTH,
        metavar="BATCH=EPOCHS",
    )
    critical_batch: float | None = option(
        number(above=0),
        "Critical batch size: the global batch that needs twice the minimum number of epochs.",
        panel=LENGTH,
    )
    reference_batch: int | None = option(
        whole_number(1), "Global batch size for which `epochs`, `steps` or `log` are given.", panel=LENGTH
    )

    def __post_init__(self) -> None:
        if (self.log is None) != (self.target is None):
            raise InvalidRequest(
                "`target` and `log` go together: the value to reach, and the log it is predicted from"
            )
        known = (self.planned_steps, self.schedule, self.history)
        if self.log is None and any(value is not None for value in known):
            raise InvalidRequest("`planned_steps`, `schedule` and `history` need `log` and `target`")
        given = [name for name in ("steps", "epochs", "tokens", "log") if getattr(self, name) is not None]
        if self.tokens is not None and not (math.isfinite(self.tokens) and self.tokens >= 1):
            raise InvalidRequest(f"`tokens` must be at least 1, got {self.tokens:g}")
        if self.steps is not None and self.steps < 1:
            raise InvalidRequest(f"`steps` must be at least 1, got {self.steps}")
        if len(given) > 1 or (self.epochs is not None and self.epochs_at):
            raise InvalidRequest(
                "give the length of the job once: `steps`, `epochs`, `tokens`, `epochs_at`, or `target` with "
                "`log`"
            )
        if self.epochs is not None and not (math.isfinite(self.epochs) and self.epochs > 0):
            raise InvalidRequest(f"`epochs` must be finite and above 0, got {self.epochs:g}")
        if self.samples is not None and self.samples < 1:
            raise InvalidRequest(f"`samples` must be at least 1, got {self.samples}")
        if self.samples is None and (self.epochs is not None or (self.epochs_at and not given)):
            field = "epochs" if self.epochs is not None else "epochs_at"
            raise InvalidRequest(f"`{field}` requires `samples`, the samples of an epoch; or give `steps`")
        self._check_batches(bool(given))

    def _check_batches(self, holds_at_a_batch: bool) -> None:
        reference = self.reference_batch
        if reference is not None and reference < 1:
            raise InvalidRequest(f"`reference_batch` must be at least 1, got {reference}")
        if self.critical_batch is not None and self.epochs_at:
            raise InvalidRequest("`critical_batch` and `epochs_at` state the same: give one of them")
        if self.critical_batch is not None and reference is None:
            raise InvalidRequest(
                "`critical_batch` requires `reference_batch`, the global batch at which the length holds"
            )
        if reference is not None and not holds_at_a_batch:
            raise InvalidRequest(
                "`reference_batch` is the global batch of `steps`, `epochs` or `log`: give one of them"
                + (", or omit it: `epochs_at` names its own batch sizes" if self.epochs_at else "")
            )
        if self.epochs_at and holds_at_a_batch and reference is None:
            raise InvalidRequest(
                "`epochs_at` with `steps` or `log` requires `reference_batch`, the global batch of these"
            )

    @property
    def is_to_a_target(self) -> bool:
        """Whether the job ends at a target rather than after a given number of steps."""
        return self.log is not None or bool(self.epochs_at) or self.critical_batch is not None

    @property
    def is_known(self) -> bool:
        """Whether the length of the job is given."""
        return bool(self.epochs_at) or any(
            given is not None for given in (self.steps, self.epochs, self.tokens, self.log)
        )

    @property
    def forecast(self) -> LogRequest | None:
        """The log to extrapolate, where the length is that to a target."""
        return None if self.log is None else part(LogRequest, self)


@dataclass(frozen=True, kw_only=True)
class BatchLimits(BatchOption, BatchDivision):
    """A fixed batch of each device and step, a fixed global batch, or any up to `max_global_batch`."""

    max_global_batch: int | None = option(whole_number(1), "Maximum global batch size.", panel=STEP)

    def __post_init__(self) -> None:
        for name in ("batch", "micro_batches", "global_batch", "max_global_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"`{name}` must be at least 1, got {value}")
        if self.batch is not None and self.global_batch is not None:
            raise InvalidRequest("give `batch` (of each device) or `global_batch`, not both")
        if self.global_batch is not None and self.global_batch > self.largest:
            raise InvalidRequest(
                f"`global_batch` {self.global_batch} exceeds `max_global_batch` "
                f"{self.max_global_batch}: give one of them"
            )
        for field, size in (("batch", self.batch), ("global_batch", self.global_batch)):
            if size is not None and size % (self.micro_batches or 1):
                raise InvalidRequest(
                    f"`{field}` {size} does not split into {self.micro_batches} equal micro-batches"
                )

    @property
    def micro_batch(self) -> int | None:
        """The micro-batch of each device, where its batch is given."""
        return None if self.batch is None else self.batch // (self.micro_batches or 1)

    @property
    def is_open(self) -> bool:
        """Whether the global batch is to be chosen and has no upper limit."""
        return self.batch is None and self.global_batch is None and self.max_global_batch is None

    def up_to(self, most: int) -> BatchLimits:
        """The same with a largest global batch, unless the limits already imply one."""
        return replace(self, max_global_batch=most) if self.is_open else self

    @property
    def largest(self) -> float:
        """The largest global batch allowed."""
        return math.inf if self.max_global_batch is None else self.max_global_batch

    def rounds(self, batch: int, devices: int) -> list[int]:
        """The allowed numbers of micro-batches, each of `batch` samples per device."""
        samples = batch * devices
        if self.global_batch is not None:
            rounds, left = divmod(self.global_batch, samples)
            counts = [rounds] if rounds and not left else []
        elif self.micro_batches is not None or self.batch is not None or self.max_global_batch is None:
            counts = [self.micro_batches or 1]
        else:
            counts = [1 << power for power in range((self.max_global_batch // samples).bit_length())]
        return [each for each in counts if each * samples <= self.largest and self._is_allowed(each)]

    def sizes(self, counts: Iterable[int]) -> Iterator[int]:
        """Micro-batches of a device to compare on these numbers of devices, ascending: powers of two.

        Where the global batch is given: the largest divisor of each device's share in every octave.
        """
        if self.micro_batch is not None:
            yield self.micro_batch
        elif self.global_batch is not None:
            shares = [self.global_batch // count for count in counts if self.global_batch % count == 0]
            yield from sorted({size for share in shares for size in self._parts(share)})
        else:
            yield from takewhile(lambda size: size <= self.largest, (1 << power for power in count()))

    def _parts(self, share: int) -> Iterable[int]:
        """Sizes of equal micro-batches of the share of one device."""
        if self.micro_batches is not None:
            return [] if share % self.micro_batches else [share // self.micro_batches]
        divisors = (size for size in range(1, share + 1) if share % size == 0)
        return {size.bit_length(): size for size in divisors}.values()

    def _is_allowed(self, rounds: int) -> bool:
        return self.micro_batches is None or rounds == self.micro_batches


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Evaluations in the course of a job. Without `eval_every` there is one at its end."""

    eval_samples: int | None = option(whole_number(1), "Samples per evaluation.", panel=JOB)
    eval_every: int | None = option(
        whole_number(1), "Steps between evaluations (default: one epoch, or the whole job).", panel=JOB
    )


@dataclass(frozen=True, kw_only=True)
class RunningOptions(EvaluationOptions):
    """How a job is run: start-up, checkpoints, evaluations, interruptions."""

    startup: float | None = option(DURATION, "Time from requesting machines to the first step.", panel=JOB)
    checkpoint_every: float | None = option(
        DURATION, "Training time between checkpoints (default: the best interval).", panel=JOB
    )
    checkpoint_rate: float | None = option(
        BANDWIDTH, "Write bandwidth of checkpoints, e.g. 1GB/s.", panel=JOB
    )
    spot: bool = option(
        SWITCH,
        "Use spot machines, with spot prices and interruptions.",
        default=False,
        panel=MONEY_AND_ENERGY,
    )
    interruptions_per_day: float | None = option(number(0), "Interruptions per machine and day.", panel=JOB)


@dataclass(frozen=True, kw_only=True)
class BillingOptions:
    """What machines cost, and where they are."""

    usd_per_hour: float | None = option(
        MONEY, "Total price of all machines per hour (default: price of the offer).", panel=MONEY_AND_ENERGY
    )
    region: str | None = option(
        TEXT,
        "Where the job runs: cloud region, country or US state.",
        panel=MONEY_AND_ENERGY,
        complete="region",
    )


@dataclass(frozen=True, kw_only=True)
class JobOptions(RunningOptions, BillingOptions):
    """How a job is run and billed; None takes the default of `facts.running`, or leaves the part out.

    Durations are seconds, `checkpoint_rate` bytes per second. `checkpoint_fixed_seconds` is the part of a
    checkpoint's time that does not depend on its size.
    """

    checkpoint_fixed_seconds: float | None = None

    def __post_init__(self) -> None:
        rate, every = self.checkpoint_rate, self.eval_every
        if rate is not None and not rate > 0:
            raise InvalidRequest(f"the checkpoint rate must be above 0 bytes/s, got {rate:g}")
        if self.eval_samples is not None and self.eval_samples < 1:
            raise InvalidRequest(f"an evaluation needs at least 1 sample, got {self.eval_samples}")
        if every is not None and every < 1:
            raise InvalidRequest(f"evaluations must be at least 1 step apart, got {every}")
        if every is not None and self.eval_samples is None:
            raise InvalidRequest("`eval_every` requires `eval_samples`, the samples of each evaluation")
