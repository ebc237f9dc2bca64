"""What a whole job takes: its steps, and everything that is not a step.

    job = start-up + steps · step + evaluations + checkpoints + repeated work + restarts

Each part has an interval and a source; parts that share a source err together (`estimates`). Checkpoint
interval, repeated work and restarts are the expected values of `interruptions`; their intervals cover the
uncertainty of the interruption rate and the random number of interruptions. Training waits while a
checkpoint is written. The wait for spot machines to come back, beyond a start-up, is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part, Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.facts.sheets import FactKind
from foretrain.jobs.bill import Energy, Price, energy_of_all, price_of_all
from foretrain.jobs.interruptions import (
    Interrupted,
    best_interval,
    estimate_interruptions,
    interruptions,
    losses,
)
from foretrain.jobs.options import JobOptions
from foretrain.prediction.answer import Prediction

TRAINING, PERHAPS = "training", "training that may be needed"
STARTING, EVALUATING, SAVING = "start-up", "evaluation", "checkpoints"
STEP_TIME = "time of a step"


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a job, the source of that number, and notes on it."""

    quantiles: Quantiles
    source: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.quantiles.p90) and self.quantiles.p50 >= 1):
            raise InvalidRequest(
                f"a job has a finite number of steps, at least 1; got {self.quantiles.p50:g}"
            )


@dataclass(frozen=True, slots=True)
class RepeatedStep:
    """What a job repeats: time of a step and of its forward pass, samples, and bytes of a checkpoint."""

    seconds: Quantiles
    forward_seconds: float
    global_batch: int
    state_bytes: float


@dataclass(frozen=True, slots=True)
class JobPart:
    """One part of a job's time with its own interval and source."""

    name: str
    seconds: float
    interval: Quantiles
    source: str


@dataclass(frozen=True, slots=True)
class Uncertainty:
    """How far one source alone moves the job's time, down and up."""

    source: str
    below_seconds: float
    above_seconds: float


@dataclass(frozen=True, slots=True)
class Saving:
    """Checkpoints of a job: work between two of them, how many there are, their size and time."""

    every_seconds: float
    every_steps: int
    times: float
    bytes: float
    seconds_each: float


@dataclass(frozen=True)
class JobTime:
    """The time of a job: all of it that depends neither on the price nor on the place of its machines.

    `parts` sum to the median; `uncertainty` has the largest source first.
    """

    steps: Steps
    seconds: Quantiles
    parts: tuple[JobPart, ...]
    uncertainty: tuple[Uncertainty, ...]
    saving: Saving
    interruptions: float
    interruptions_per_day: Quantiles


@dataclass(frozen=True)
class Job:
    """What a whole job takes. `parts` sum to the median; `uncertainty` has the largest source first.

    `usd` is None without a known price, `kwh` without a known power, `co2_kg` without a known place; `notes`
    says which.
    """

    steps: int
    steps_interval: Quantiles
    steps_source: str
    seconds: Quantiles
    usd: Quantiles | None
    kwh: float | None
    co2_kg: float | None
    parts: tuple[JobPart, ...]
    uncertainty: tuple[Uncertainty, ...]
    saving: Saving
    interruptions: float
    interruptions_per_day: Quantiles
    price: Price | None
    energy: Energy | None
    notes: tuple[str, ...]


def job(
    step: RepeatedStep, steps: Steps, groups: Sequence[Hardware], options: JobOptions | None = None
) -> Job:
    """The job of `steps` steps on a cluster: groups of equal nodes that all take part in every step.

    A homogeneous cluster has one group.
    """
    options = options or JobOptions()
    time = job_time(
        step, steps, sum(group.devices for group in groups), sum(group.nodes for group in groups), options
    )
    price = price_of_all(groups, options.spot, options.usd_per_hour, options.region)
    return bill_job(
        time, groups, price, energy_of_all(groups, time.seconds, price, options.region), options.spot
    )


def job_of(prediction: Prediction, steps: Steps, options: JobOptions | None = None) -> Job:
    """The job of `steps` predicted steps, on the nodes that take part in them.

    Nodes that receive no share of the batch of a heterogeneous cluster add neither cost nor energy.
    """
    one, groups, nodes = prediction.step, prediction.cluster.groups, prediction.cluster.nodes
    if prediction.split is not None:
        shares = zip(groups, prediction.split.shares, strict=True)
        groups = tuple(replace(each, nodes=share.nodes_used) for each, share in shares if share.nodes_used)
    step = RepeatedStep(one.seconds, one.forward_seconds, prediction.update_batch, prediction.state_bytes)
    answer = job(step, steps, groups, options)
    idle = nodes - sum(group.nodes for group in groups)
    if not idle:
        return answer
    note = f"{idle} of {nodes} nodes do not train: their price and power are not counted"
    return replace(answer, notes=(*answer.notes, note))


def evaluate_each_epoch(options: JobOptions, samples: int | None, global_batch: int) -> JobOptions:
    """The same options with one evaluation per epoch of `samples`, unless `eval_every` is given."""
    if options.eval_samples is None or options.eval_every is not None or samples is None:
        return options
    return replace(options, eval_every=math.ceil(samples / global_batch))


def job_time(step: RepeatedStep, steps: Steps, devices: int, nodes: int, options: JobOptions) -> JobTime:
    """The time of a job on `devices` devices in `nodes` nodes.

    Raises `InvalidRequest` where interruptions come so often that the job never ends.
    """
    starting = _starting(options)
    working = [*_training(step, steps), *_evaluating(step, steps, options)]
    work = sum(part.value for part in working)
    each = _seconds_to_save(step, options)
    stops = interruptions(devices, nodes, options.spot, options.interruptions_per_day)
    every = options.checkpoint_every
    if every is None:
        every = best_interval(each.p50, stops, work)
    restart = starting.value + each.p50
    lost = estimate_interruptions(work, each.p50, restart, stops.between_seconds, every)
    parts = (starting, *working, _saving(lost, each, options), *losses(work, each.p50, restart, stops, lost))
    total = Estimate("s", tuple(part for part in parts if part.value > 0 or part.above > 0))
    return JobTime(
        steps=steps,
        seconds=total.quantiles,
        parts=tuple(JobPart(part.name, part.value, part.quantiles, part.source) for part in total.parts),
        uncertainty=uncertainty(total.parts),
        saving=Saving(
            lost.interval_seconds,
            _steps_between(lost.interval_seconds, step, steps),
            lost.checkpoints,
            step.state_bytes,
            each.p50,
        ),
        interruptions=lost.interruptions,
        interruptions_per_day=stops.per_day,
    )


def bill_job(
    time: JobTime, groups: Sequence[Hardware], price: Price | None, energy: Energy | None, spot: bool
) -> Job:
    """The job with its bill and energy."""
    steps = time.steps
    return Job(
        steps=round(steps.quantiles.p50),
        steps_interval=steps.quantiles,
        steps_source=steps.source,
        seconds=time.seconds,
        usd=None if price is None else price.bill(time.seconds),
        kwh=None if energy is None else energy.kwh.p50,
        co2_kg=None if energy is None or energy.co2_kg is None else energy.co2_kg.p50,
        parts=time.parts,
        uncertainty=time.uncertainty,
        saving=time.saving,
        interruptions=time.interruptions,
        interruptions_per_day=time.interruptions_per_day,
        price=price,
        energy=energy,
        notes=(*steps.notes, *_notes(groups, price, energy, spot)),
    )


def uncertainty(parts: Iterable[Part]) -> tuple[Uncertainty, ...]:
    """How far each source moves a sum of parts, the widest first; exact sources are omitted."""
    by_source: dict[str, tuple[float, float]] = {}
    for part in parts:
        below, above = by_source.get(part.source, (0.0, 0.0))
        by_source[part.source] = (below + part.below, above + part.above)
    listed = [Uncertainty(source, *both) for source, both in by_source.items() if any(both)]
    return tuple(sorted(listed, key=lambda one: -(one.below_seconds + one.above_seconds)))


def _starting(options: JobOptions) -> Part:
    if options.startup is not None:
        return Part(STARTING, options.startup, "start-up as given")
    known = default(STARTUP)
    return _part(STARTING, known.quantiles, f"start-up ({known.kind}: {known.source})")


def _training(step: RepeatedStep, steps: Steps) -> list[Part]:
    """Steps · step. Uncertain steps (p10 to p50) are a part of their own, which may not be needed."""
    each, count = step.seconds, steps.quantiles
    certain = count.p10 * each.p50
    parts = [
        Part(
            TRAINING,
            certain,
            STEP_TIME,
            below=min(certain, count.p50 * (each.p50 - each.p10)),
            above=count.p50 * (each.p90 - each.p50),
        )
    ]
    if count.p90 > count.p10:
        perhaps = (count.p50 - count.p10) * each.p50
        above = (count.p90 - count.p50) * each.p50
        parts.append(Part(PERHAPS, perhaps, steps.source, below=perhaps, above=above))
    return parts


def _evaluating(step: RepeatedStep, steps: Steps, options: JobOptions) -> list[Part]:
    """Forward passes over the evaluation samples; they err as the steps do."""
    if options.eval_samples is None:
        return []
    times = 1 if options.eval_every is None else max(1, steps.quantiles.p50 // options.eval_every)
    passes = times * math.ceil(options.eval_samples / step.global_batch)
    seconds = step.seconds.scale(step.forward_seconds / step.seconds.p50 * passes)
    return [_part(EVALUATING, seconds, STEP_TIME)]


def _seconds_to_save(step: RepeatedStep, options: JobOptions) -> Quantiles:
    """Time of a checkpoint: a fixed part, and its bytes at the rate they are written."""
    rates = _choose_quantiles(options.checkpoint_rate, CHECKPOINT_RATE)
    fixed = _choose_quantiles(options.checkpoint_fixed_seconds, CHECKPOINT_FIXED)
    return Quantiles(
        fixed.p10 + step.state_bytes / rates.p90,
        fixed.p50 + step.state_bytes / rates.p50,
        fixed.p90 + step.state_bytes / rates.p10,
    )


def _choose_quantiles(given: float | None, name: str) -> Quantiles:
    return default(name).quantiles if given is None else Quantiles(given, given, given)


def _steps_between(interval_seconds: float, step: RepeatedStep, steps: Steps) -> int:
    """Steps from one checkpoint to the next: as many as fit into the interval, at most the whole job."""
    fitting = max(1, round(interval_seconds / step.seconds.p50))
    return min(fitting, math.ceil(steps.quantiles.p50))


def _saving(lost: Interrupted, each: Quantiles, options: JobOptions) -> Part:
    known = default(CHECKPOINT_RATE)
    given = options.checkpoint_rate is not None
    source = "time of a checkpoint" + (", rate as given" if given else f" ({known.kind}: {known.source})")
    return _part(SAVING, each.scale(lost.checkpoints), source)


def _part(name: str, seconds: Quantiles, source: str) -> Part:
    return Part(name, seconds.p50, source, seconds.p50 - seconds.p10, seconds.p90 - seconds.p50)


def _notes(
    groups: Sequence[Hardware], price: Price | None, energy: Energy | None, spot: bool
) -> tuple[str, ...]:
    """What is unknown, assumed or not counted."""
    notes: list[str] = []
    if price is None:
        unpriced = ", ".join(group.name for group in groups if group.offer is None)
        of = f" of {unpriced}" if len(groups) > 1 else ""
        notes.append(f"price unknown{of}: name the machine as PROVIDER:INSTANCE, or give `usd_per_hour`")
    else:
        assumed = (one.terms.note for one in price.each if one.terms.kind is FactKind.ASSUMED)
        notes.extend(dict.fromkeys(assumed))
    if energy is None:
        notes.append("energy and emissions unknown: the power of the device is not known")
    elif energy.co2_kg is None:
        notes.append("emissions unknown without a place: give `region`, e.g. FRA, US-VA or a cloud's region")
    if spot:
        notes.append("the wait for spot machines to come back, beyond a start-up, is not counted")
    return tuple(notes)
