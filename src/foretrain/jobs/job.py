"""A whole job.

A whole job: its steps, and all that is not steps.

    job = start-up + steps · step + evaluations + checkpoints + work done again + restarts

Every part has an interval and a source; parts of one source err together (`estimates`). The times between
checkpoints, the work done again and the restarts are those of `checkpoints`: expected values, whose interval
holds both how well the rate of interruptions is known and the luck of how many come. Checkpoints are written
while training waits. Waiting for spot machines to come back beyond a start-up is not counted.

What a reader should know of a job's bill and energy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part, Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.facts.running import CHECKPOINT_FIXED, CHECKPOINT_RATE, STARTUP, default
from foretrain.facts.sheets import Kind
from foretrain.jobs.bill import Price, price_of_all
from foretrain.jobs.energy import Energy, energy_of_all
from foretrain.jobs.interruptions import Interrupted, best_interval, interrupted, interruptions, losses
from foretrain.prediction.answer import Prediction

TRAINING, PERHAPS = "training", "training that may be needed"
STARTING, EVALUATING, SAVING = "start-up", "evaluation", "checkpoints"
STEP_TIME = "time of a step"


@dataclass(frozen=True, slots=True)
class Steps:
    """How many steps a job has, what says so, and what to know of that."""

    quantiles: Quantiles
    source: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.quantiles.p90) and self.quantiles.p50 >= 1):
            raise InvalidRequest(f"a job of {self.quantiles.p50:g} steps: give a finite number of at least 1")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How a job is run; what is None is taken from `facts.running`, or left out.

    `usd_per_hour` is for all machines together, `interruptions_per_day` for each machine,
    `checkpoint_every_seconds` counts work. Without `evaluate_every` steps a job is evaluated at its end.
    """

    startup_seconds: float | None = None
    checkpoint_every_seconds: float | None = None
    checkpoint_bytes_per_second: float | None = None
    checkpoint_fixed_seconds: float | None = None
    interruptions_per_day: float | None = None
    spot: bool = False
    usd_per_hour: float | None = None
    region: str | None = None
    evaluation_samples: int | None = None
    evaluate_every: int | None = None

    def __post_init__(self) -> None:
        rate, every = self.checkpoint_bytes_per_second, self.evaluate_every
        if rate is not None and not rate > 0:
            raise InvalidRequest(f"checkpoints written at {rate:g} bytes/s: give more than 0")
        if self.evaluation_samples is not None and self.evaluation_samples < 1:
            raise InvalidRequest(f"an evaluation of {self.evaluation_samples} samples: give at least 1")
        if every is not None and every < 1:
            raise InvalidRequest(f"an evaluation every {every} steps: give at least 1")


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What a job repeats: a step's time, its forward pass alone, its samples, and the bytes to save."""

    seconds: Quantiles
    forward_seconds: float
    global_batch: int
    state_bytes: float


@dataclass(frozen=True, slots=True)
class JobPart:
    """One part of a job's time, its own interval, and what it rests on."""

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
    """How the job is saved: every so much work, so many times, so many bytes, so many seconds each."""

    every_seconds: float
    every_steps: int
    times: float
    bytes: float
    seconds_each: float


@dataclass(frozen=True)
class Job:
    """What a whole job takes. `parts` sum to the median; `uncertainty` has the largest source first.

    `usd` is None where no price is known, `kwh` where no power is, `co2_kg` where no place is: see `notes`.
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


def job_of(prediction: Prediction, steps: Steps, running: JobOptions | None = None) -> Job:
    """The job of a number of predicted steps, on the nodes that take part in them.

    Nodes that a heterogeneous cluster excludes cost nothing and draw no power here.
    """
    step, groups = prediction.step, prediction.cluster.groups
    if prediction.split is not None:
        used = zip(groups, prediction.split.shares, strict=True)
        groups = tuple(replace(each, nodes=share.nodes_used) for each, share in used if share.nodes_used)
    one = StepSummary(step.seconds, step.forward_seconds, prediction.update_batch, prediction.state_bytes)
    job = job_on_groups(one, steps, groups, running)
    idle = prediction.cluster.nodes - sum(group.nodes for group in groups)
    if not idle:
        return job
    note = f"{idle} of {prediction.cluster.nodes} nodes do not train: their price and power are not counted"
    return replace(job, notes=(*job.notes, note))


def evaluated_each_epoch(running: JobOptions, samples: int | None, global_batch: int) -> JobOptions:
    """The same, evaluated once an epoch of so many samples where nothing else is said."""
    if running.evaluation_samples is None or running.evaluate_every is not None or samples is None:
        return running
    return replace(running, evaluate_every=math.ceil(samples / global_batch))


def job_in_steps(
    step: StepSummary, steps: Steps, hardware: Hardware, running: JobOptions | None = None
) -> Job:
    """The same from what one step takes."""
    return job_on_groups(step, steps, (hardware,), running)


def job_on_groups(
    step: StepSummary, steps: Steps, groups: Sequence[Hardware], running: JobOptions | None = None
) -> Job:
    """The same on groups of equal nodes that all take part in every step, each group unlike the others."""
    running = running or JobOptions()
    starting = _starting(running)
    working = [*_training(step, steps), *_evaluating(step, steps, running)]
    work = sum(part.value for part in working)
    each = _seconds_to_save(step, running)
    stops = interruptions(
        sum(group.devices for group in groups),
        sum(group.nodes for group in groups),
        running.spot,
        running.interruptions_per_day,
    )
    every = running.checkpoint_every_seconds
    if every is None:
        every = best_interval(each.p50, stops, work)
    restart = starting.value + each.p50
    lost = interrupted(work, each.p50, restart, stops.between_seconds, every)
    parts = (starting, *working, _saving(lost, each, running), *losses(work, each.p50, restart, stops, lost))
    total = Estimate("s", tuple(part for part in parts if part.value > 0 or part.above > 0))
    price = price_of_all(groups, running.spot, running.usd_per_hour, running.region)
    seconds = total.quantiles
    energy = energy_of_all(groups, seconds, price, running.region)
    return Job(
        steps=round(steps.quantiles.p50),
        steps_interval=steps.quantiles,
        steps_source=steps.source,
        seconds=seconds,
        usd=None if price is None else price.bill(seconds),
        kwh=None if energy is None else energy.kwh.p50,
        co2_kg=None if energy is None or energy.co2_kg is None else energy.co2_kg.p50,
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
        price=price,
        energy=energy,
        notes=(*steps.notes, *notes_of(groups, price, energy, running.spot)),
    )


def uncertainty(parts: Iterable[Part]) -> tuple[Uncertainty, ...]:
    """How far each source moves a sum of parts, the widest first; sources without doubt are left out."""
    by_source: dict[str, tuple[float, float]] = {}
    for part in parts:
        below, above = by_source.get(part.source, (0.0, 0.0))
        by_source[part.source] = (below + part.below, above + part.above)
    listed = [Uncertainty(source, *both) for source, both in by_source.items() if any(both)]
    return tuple(sorted(listed, key=lambda one: -(one.below_seconds + one.above_seconds)))


def _starting(running: JobOptions) -> Part:
    if running.startup_seconds is not None:
        return Part(STARTING, running.startup_seconds, "start-up as given")
    known = default(STARTUP)
    return _part(STARTING, known.quantiles, f"start-up ({known.kind}: {known.source})")


def _training(step: StepSummary, steps: Steps) -> list[Part]:
    """Steps · step. Where steps are in doubt too, those between p10 and p50 are a part that may fall away."""
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


def _evaluating(step: StepSummary, steps: Steps, running: JobOptions) -> list[Part]:
    """Forward passes over the samples to evaluate on, which err as the steps do."""
    if running.evaluation_samples is None:
        return []
    times = 1 if running.evaluate_every is None else max(1, steps.quantiles.p50 // running.evaluate_every)
    passes = times * math.ceil(running.evaluation_samples / step.global_batch)
    seconds = step.seconds.scale(step.forward_seconds / step.seconds.p50 * passes)
    return [_part(EVALUATING, seconds, STEP_TIME)]


def _seconds_to_save(step: StepSummary, running: JobOptions) -> Quantiles:
    """Time of a checkpoint: a fixed part, and its bytes at the rate they are written."""
    rates = _given_or(running.checkpoint_bytes_per_second, CHECKPOINT_RATE)
    fixed = _given_or(running.checkpoint_fixed_seconds, CHECKPOINT_FIXED)
    return Quantiles(
        fixed.p10 + step.state_bytes / rates.p90,
        fixed.p50 + step.state_bytes / rates.p50,
        fixed.p90 + step.state_bytes / rates.p10,
    )


def _given_or(given: float | None, name: str) -> Quantiles:
    return default(name).quantiles if given is None else Quantiles(given, given, given)


def _steps_between(interval_seconds: float, step: StepSummary, steps: Steps) -> int:
    """Steps from one checkpoint to the next: as many as fit into the interval, at most the whole job."""
    fitting = max(1, round(interval_seconds / step.seconds.p50))
    return min(fitting, math.ceil(steps.quantiles.p50))


def _saving(lost: Interrupted, each: Quantiles, running: JobOptions) -> Part:
    known = default(CHECKPOINT_RATE)
    given = running.checkpoint_bytes_per_second is not None
    source = "time of a checkpoint" + (", rate as given" if given else f" ({known.kind}: {known.source})")
    return _part(SAVING, each.scale(lost.checkpoints), source)


def _part(name: str, seconds: Quantiles, source: str) -> Part:
    return Part(name, seconds.p50, source, seconds.p50 - seconds.p10, seconds.p90 - seconds.p50)


def notes_of(
    groups: Sequence[Hardware], price: Price | None, energy: Energy | None, spot: bool
) -> tuple[str, ...]:
    """What is not known, assumed or not counted."""
    notes: list[str] = []
    if price is None:
        unpriced = ", ".join(group.name for group in groups if group.offer is None)
        of = f" of {unpriced}" if len(groups) > 1 else ""
        notes.append(f"no price is known{of}: name the machine as PROVIDER:INSTANCE, or give --usd-per-hour")
    else:
        assumed = (one.terms.note for one in price.each if one.terms.kind is Kind.ASSUMED)
        notes.extend(dict.fromkeys(assumed))
    if energy is None:
        notes.append("no power of the device is known, so no energy and no emissions")
    elif energy.co2_kg is None:
        notes.append(
            "no emissions: the place is not known; give --region, e.g. FRA, US-VA or a cloud's region"
        )
    if spot:
        notes.append("the wait for spot machines to come back, beyond a start-up, is not counted")
    return tuple(notes)
