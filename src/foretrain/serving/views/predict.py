"""What a training step and its job take: time, memory, bottleneck, what would help, and their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import (
    Block,
    Break,
    Column,
    Figure,
    Figures,
    Heading,
    Page,
    Sentence,
    Table,
    Tone,
)
from foretrain.serving.views.wording import (
    amount,
    as_flags,
    expected_interruptions,
    flag,
    notes,
    probability,
)
from foretrain.units import format_bytes, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.answers import Infeasible
    from foretrain.facts.devices import Device
    from foretrain.jobs.bill import Price
    from foretrain.jobs.epochs import Epoch
    from foretrain.jobs.job import Job, JobPart
    from foretrain.jobs.predict import JobPrediction
    from foretrain.prediction.advice.bottleneck import Advice, Bottleneck
    from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
    from foretrain.prediction.answer import (
        FitAnswer,
        MemoryAnswer,
        ParallelismReport,
        Prediction,
        StepAnswer,
        StepPart,
    )
    from foretrain.prediction.heterogeneous.division import BatchSplit, GroupShare
    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.workload import Workload

_MOST_PARTS = 12
_SMALLEST_SHARE = 0.001
_RISKY = 0.1
"""A higher chance of running out of memory is shown as a warning."""
_BAR = 24
"""Characters of a bar for perfect scaling."""


def infeasible_page(answer: Infeasible) -> Page:
    """That nothing satisfies a request, with the tightest constraint."""
    return Page("Infeasible", (Heading(as_flags(str(answer)), Tone.BAD),))


def fit_page(answer: FitAnswer) -> Page:
    """The verdict in a line, what would make it fit as options to copy, and what memory is used for."""
    title = f"{answer.workload.source.name} on {answer.cluster.name}"
    return Page.of(title, _fit_blocks(answer, title))


def _fit_blocks(answer: FitAnswer, title: str) -> Iterator[Block]:
    memory, chance = answer.memory, answer.probability
    tone = Tone.BAD if not memory.fits else Tone.WARNING if 1 - chance > _RISKY else Tone.GOOD
    verdict = "fits" if memory.fits else "does not fit"
    largest = f"largest batch {memory.largest_batch}" if memory.largest_batch else "no batch fits"
    yield Sentence(
        f"{title} {verdict} at batch {answer.batch} ({probability(chance)} chance to fit): "
        f"{format_bytes(memory.bytes.p50)} of {format_bytes(memory.capacity_bytes)}, {largest}",
        tone,
    )
    yield Sentence(training_words(answer.workload, answer.tokens // max(1, answer.batch)), indent=1)
    yield Sentence(
        f"80 % between {format_bytes(memory.bytes.p10)} and {format_bytes(memory.bytes.p90)}", indent=1
    )
    if answer.solutions:
        yield Break()
        yield Table(
            [Column("what would make it fit", least=20), Column("needs", right=True)],
            [(options_text(options), format_bytes(remedy.bytes)) for remedy, options in answer.solutions],
        )
    elif memory.advice:
        yield Sentence(_nearest(memory, answer.device), Tone.WARNING)
    yield notes(answer.notes)
    yield Break()
    yield _moment(memory)
    yield _uses(memory)


def options_text(options: Mapping[str, str]) -> str:
    """Options of a request as they are typed on a command line."""
    return " ".join(f"{flag(name)} {value}".rstrip() for name, value in options.items())


def predict_page(prediction: JobPrediction) -> Page:
    """The answer first, then what it is made of."""
    title = f"{prediction.workload.source.name} on {prediction.cluster.name}"
    return Page.of(title, _blocks(prediction, title))


def _blocks(prediction: JobPrediction, title: str) -> Iterator[Block]:
    from foretrain.facts.devices import device

    is_parallel = prediction.cluster.devices > 1
    yield Heading(f"{title}, {_batch(prediction)}")
    yield Sentence(training_words(prediction.workload, prediction.tokens // max(1, prediction.batch)))
    if is_parallel:
        yield from _layout(prediction.parallelism)
    if prediction.split is not None:
        yield from _split(prediction.split)
    yield from _step(prediction)
    if prediction.epoch is not None:
        yield _epoch(prediction.epoch)
    if prediction.job is not None:
        yield from job_blocks(prediction.job, prediction.usd_per_million_tokens)
    yield from _memory_lines(prediction.memory, prediction.fullest_device)
    yield from _bottleneck(prediction.bottleneck, device(prediction.pacing_device))
    yield notes(prediction.notes)
    if is_parallel:
        yield from _parallelism(prediction.parallelism)
    if prediction.job is not None:
        yield from job_parts(prediction.job)
    yield from _step_parts(prediction.step)
    yield from _memory(prediction.memory)


def _batch(prediction: Prediction) -> str:
    report = prediction.parallelism
    if prediction.split is not None:
        return (
            f"global batch {report.global_batch} on {prediction.cluster.devices} devices of different kinds"
        )
    of = "replica" if report.replicas < prediction.cluster.devices else "device"
    text = f"batch {prediction.batch} per {of}"
    if report.global_batch != prediction.batch:
        text += f", global batch {report.global_batch}"
    return f"{text}, {report.micro_batches} micro-batches" if report.micro_batches > 1 else text


def training_words(workload: Workload, tokens: int = 0) -> str:
    """How a model is trained: `Training in bf16 (autocast, weights fp32) with adamw, 512 tokens per sample`.

    `tokens` are those of a sample; 0 for models that have none.
    """
    options = workload.options
    words = ["Forward pass" if options.forward_only else "Training"]
    if "precision" not in workload.left_open:  # else it was learned from timings that do not say theirs
        words[0] += f" in {_precision_words(options)}"
    if options.optimizer is not None and not options.forward_only:
        words[0] += f" with {options.optimizer}"
    if workload.lora is not None:
        base = "quantised base" if workload.lora.quantised else f"{options.weights} base"
        words.append(f"LoRA of rank {workload.lora.rank} on a frozen {base}")
    if tokens:
        words.append(f"{tokens:,} tokens per sample")
        of_year = f" of {options.software_year}" if options.software_year else ""
        words.append(f"attention {options.attention}{of_year}")
    if options.offload:
        words.append(f"{' and '.join(options.offload)} offloaded to the host")
    flags = {
        "activations checkpointed": options.checkpoint_activations and not options.selective_checkpointing,
        "activations selectively checkpointed": options.selective_checkpointing,
        "gradients released": options.gradient_release,
        "compiled": options.compile,
        "CUDA graphs": options.cuda_graphs,
        "channels last": options.channels_last,
    }
    return ", ".join([*words, *(name for name, is_on in flags.items() if is_on)])


def _precision_words(options: ResolvedOptions) -> str:
    if options.precision == options.weights or options.precision == "tf32":
        stored = [] if options.weights == "fp32" else [f"weights {options.weights}"]
    else:
        stored = ["autocast" if options.casts else "", f"weights {options.weights}"]
    if options.master_weights:
        stored.append("FP32 master weights")
    if options.adds_up_in_fp32:
        stored.append("FP32 gradients")
    if options.fp8_scaling is not None:
        stored.append(f"{options.fp8_scaling} scaling")
    stored = [each for each in stored if each]
    return f"{options.precision} ({', '.join(stored)})" if stored else options.precision


def _step(prediction: Prediction) -> Iterator[Block]:
    """The step, its phases, the throughput, and what no model covers."""
    from foretrain.prediction.step.input_pipeline import COPYING, DECODING, READING

    step, throughput = prediction.step, prediction.throughput
    seconds = step.seconds
    yield Sentence(
        f"Step: {format_duration(seconds.p50)} (80 % between {format_duration(seconds.p10)} and "
        f"{format_duration(seconds.p90)}), {prediction.knowledge_class.sentence}",
        Tone.KEY,
    )
    times = {
        "forward": step.forward_seconds,
        "backward": step.backward_seconds,
        "optimizer": step.optimizer_seconds,
        "input": step.input_seconds,
    }
    if step.communication_seconds > 0:
        times["exposed communication"] = step.exposed_communication_seconds
    is_hidden = step.input_seconds > 0 and not any(
        part.name in (READING, DECODING, COPYING) for part in step.parts
    )
    phases = [f"{name} {format_duration(time)}" for name, time in times.items()]
    if is_hidden:
        phases[list(times).index("input")] += " (overlapped)"
    yield Sentence(", ".join(phases), indent=1)
    tokens = throughput.tokens_per_second
    speed = f"{throughput.samples_per_second:,.1f} samples/s"
    if tokens is not None:
        speed += f", {tokens:,.0f} tokens/s"
    yield Sentence(f"Throughput: {speed}, MFU {throughput.mfu:.1%}")
    if prediction.coverage.unmodelled:
        unknown = ", ".join(prediction.coverage.unmodelled)
        left = 1 - prediction.coverage.modelled_share
        yield Sentence(f"Not modelled, at least {left:.1%} of the device's time: {unknown}", Tone.WARNING)


def _epoch(epoch: Epoch) -> Sentence:
    """The time of an epoch, and what it moves."""
    seconds = epoch.seconds
    moved = f"; devices exchange {format_bytes(epoch.moved_bytes)}" if epoch.moved_bytes else ""
    return Sentence(
        f"Epoch of {epoch.samples:,} samples: {epoch.steps:,} step{'' if epoch.steps == 1 else 's'}, "
        f"{format_duration(seconds.p50)} "
        f"(80 % between {format_duration(seconds.p10)} and {format_duration(seconds.p90)}){moved}"
    )


def _memory_lines(memory: MemoryAnswer, device: str) -> Iterator[Block]:
    """What the fullest device needs, and the largest batch."""
    verdict = "fits" if memory.fits else "does not fit"
    chance = memory.out_of_memory_probability
    yield Sentence(
        f"Memory: {format_bytes(memory.bytes.p50)} "
        f"(80 % between {format_bytes(memory.bytes.p10)} and {format_bytes(memory.bytes.p90)}), {verdict} "
        f"into the {format_bytes(memory.capacity_bytes)} of {device}: {probability(chance)} chance of "
        "running out of memory",
        Tone.BAD if not memory.fits else Tone.WARNING if chance > _RISKY else Tone.GOOD,
    )
    yield Sentence(f"Largest batch that fits: {memory.largest_batch or 'none'}")
    if memory.advice:
        yield Sentence(_nearest(memory, device), Tone.WARNING)


def _nearest(memory: MemoryAnswer, device: str) -> str:
    """What comes closest to the step as it was asked for and fits, or what needs least."""
    from foretrain.prediction.advice.remedies import options_of

    fitting = [(each, options_of(each.change, device)) for each in memory.advice if each.fits]
    if fitting:
        remedy, options = min(fitting, key=lambda solution: len(solution[1]))
        change = as_flags(remedy.change) if len(options) == 1 else options_text(options)
        return f"It would fit with {change}, which needs {format_bytes(remedy.bytes)}"
    least = min(memory.advice, key=lambda each: each.bytes)
    return (
        f"No change, alone or together, makes it fit: {as_flags(least.change)} helps most and still needs "
        f"{format_bytes(least.bytes)}"
    )


def _bottleneck(limit: Bottleneck, device: Device) -> Iterator[Block]:
    """What limits the step, what would make it faster, and what other hardware would do."""
    kind = device.kind if limit.kind == "gpu" else limit.kind
    yield Sentence(f"Bottleneck: {kind} - {as_flags(limit.verdict)}", Tone.LIMIT)
    for title, is_what_if in (("what would help", False), ("what if", True)):
        with_gain = (each for each in limit.advice if each.gain is not None)  # others are in the memory table
        rows = [_advice_row(each) for each in with_gain if each.is_what_if == is_what_if]
        if rows:
            yield Break()
            yield Table(
                [
                    Column(title, least=20), Column("gain", right=True), Column("step", right=True),
                    Column("samples/s", right=True), Column("memory", right=True, expendable=1),
                ],
                rows,
            )  # fmt: skip


def _advice_row(advice: Advice) -> tuple[str, ...]:
    memory = "" if advice.memory_bytes is None else format_bytes(advice.memory_bytes)
    return (
        as_flags(advice.change),
        "" if advice.gain is None else f"{advice.gain:.2f}x",
        "" if advice.step_seconds is None else format_duration(advice.step_seconds),
        "" if advice.samples_per_second is None else f"{advice.samples_per_second:,.1f}",
        memory if advice.fits else f"{memory}: does not fit",
    )


def _step_parts(step: StepAnswer) -> Iterator[Block]:
    """The parts of a step, longest first."""
    total = step.seconds.p50
    listed = [part for part in step.parts if part.seconds >= _SMALLEST_SHARE * total][:_MOST_PARTS]
    hidden = [part for part in step.hidden_parts if part.seconds >= _SMALLEST_SHARE * total][:_MOST_PARTS]
    usual = _usual_source([*listed, *hidden])
    rows = [_part_row(part, f"{part.seconds / total:.1%}", usual) for part in listed]
    rest = total - sum(part.seconds for part in listed)
    if len(listed) < len(step.parts):
        others = f"{len(step.parts) - len(listed)} others"
        rows.append((others, format_duration(rest), f"{rest / total:.1%}", ""))
    rows += [_part_row(part, "overlapped", usual) for part in hidden]
    columns = [
        Column("time of"), Column("time", right=True), Column("share", right=True),
        Column("by", least=20, expendable=1),
    ]  # fmt: skip
    is_mixed = any(by for *_, by in rows)
    yield Break()
    yield Table(columns, rows) if is_mixed else Table(columns[:-1], [row[:-1] for row in rows])
    if usual:
        yield Sentence(f"By {usual}{' where no other is named' if is_mixed else ''}")


def _usual_source(parts: Sequence[StepPart]) -> str:
    """The source of most rows, for one line under them; "" where none has two."""
    ((source, rows),) = Counter(part.source for part in parts).most_common(1) or [("", 0)]
    return source if rows > 1 else ""


def _part_row(part: StepPart, share: str, usual: str) -> tuple[str, ...]:
    source = "" if part.source == usual else part.source
    return part.name, format_duration(part.seconds), share, source


def _memory(memory: MemoryAnswer) -> Iterator[Block]:
    """The uses of memory, and what would make it fit."""
    yield Break()
    yield _moment(memory)
    yield _uses(memory)
    if memory.advice:
        yield Break()
        yield Table(
            [Column("what would help"), Column("needs", right=True), Column("fits")],
            [
                (as_flags(remedy.change), format_bytes(remedy.bytes), "yes" if remedy.fits else "no")
                for remedy in memory.advice
            ],
        )


_MOMENTS = {
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "at the optimizer step",
}


def _moment(memory: MemoryAnswer) -> Sentence:
    """When memory is fullest, which is what its uses are of, and the peaks of the other phases."""
    fullest = memory.fullest_phase
    others = [
        f"{format_bytes(size)} {_MOMENTS[phase]}"
        for phase, size in memory.phase_bytes.items()
        if phase != fullest
    ]
    reaches = f"; it reaches {' and '.join(others)}" if others else ""
    return Sentence(f"Memory is fullest {_MOMENTS[fullest]}{reaches}")


def _uses(memory: MemoryAnswer) -> Table:
    """The uses of memory, largest first."""
    rows = [
        (part.name, format_bytes(part.bytes), f"{part.bytes / memory.bytes.p50:.1%}") for part in memory.parts
    ]
    return Table([Column("memory of"), Column("size", right=True), Column("share", right=True)], rows)


# ---------------------------------------------------------------- many devices


def _layout(report: ParallelismReport) -> Iterator[Block]:
    """The strategy and the network in a line each."""
    text = f"Strategy: {report.strategy}"
    if report.searched:
        text += f", the fastest of {report.fitting} that fit ({report.searched} tried)"
    yield Sentence(text)
    if report.network:
        yield Sentence("Network: " + ", ".join(f"{name} {where}" for where, name in report.network.items()))


def _split(split: BatchSplit) -> Iterator[Block]:
    """The share of each group of nodes."""
    yield Sentence(f"Split: {split.verdict}", Tone.LIMIT)
    yield Break()
    yield Table(
        [
            Column("nodes", least=16), Column("device"), Column("used", right=True),
            Column("batch per device", right=True), Column("samples", right=True),
            Column("step", right=True), Column("computing", right=True, expendable=2),
            Column("memory", right=True, expendable=1), Column("largest batch", right=True, expendable=3),
        ],
        [_share_row(share, split.global_batch) for share in split.shares],
    )  # fmt: skip
    yield Break()


def _share_row(share: GroupShare, global_batch: int) -> tuple[str, ...]:
    used = f"{share.nodes_used} of {share.nodes}"
    holds = f"{share.largest_batch}" + ("" if share.largest_batch < global_batch else " or more")
    if share.seconds is None or share.computing_seconds is None or share.memory_bytes is None:
        return share.group, share.device, used, "excluded", "0", "", "", "", holds
    fewest, most = min(share.batches), max(share.batches)
    memory = format_bytes(share.memory_bytes)
    return (
        share.group,
        share.device,
        used,
        f"{most}" if fewest == most else f"{fewest} to {most}",
        f"{share.samples} ({share.samples / global_batch:.0%})",
        format_duration(share.seconds),
        format_duration(share.computing_seconds),
        f"{memory}, fits" if share.fits else f"{memory}: does not fit",
        holds,
    )


def _parallelism(report: ParallelismReport) -> Iterator[Block]:
    """What is exchanged, what each stage holds, and what more or fewer devices would do."""
    yield Sentence(
        f"Communication takes {report.coordination_ratio:.0%} of computing time and moves "
        f"{format_bytes(report.moved_bytes)} per step"
    )
    if report.staleness is not None:
        yield Sentence(f"Gradients are on average {report.staleness:.1f} updates old when they are used")
    if report.exchanges:
        yield from _exchanges(report)
    if report.stages:
        yield from _stages(report)
    if report.runners_up:
        yield from _runners_up(report)
    if report.families:
        yield from _families(report)
    if report.scaling is not None:
        yield from _scaling(report.scaling)


def _exchanges(report: ParallelismReport) -> Iterator[Block]:
    yield Break()
    yield Table(
        [
            Column("exchange", least=16), Column("among", right=True), Column("times", right=True),
            Column("bytes", right=True), Column("time", right=True), Column("by", expendable=1),
        ],
        [
            (
                each.name,
                str(each.members),
                str(each.count),
                format_bytes(each.bytes),
                format_duration(each.seconds),
                f"{each.algorithm}, {each.tier}",
            )
            for each in sorted(report.exchanges, key=lambda each: -each.seconds)
        ],
    )  # fmt: skip


def _stages(report: ParallelismReport) -> Iterator[Block]:
    yield Break()
    for number, name in enumerate(report.stages):
        fullest = " (needs most memory)" if number == report.fullest_stage else ""
        yield Sentence(f"Stage {number + 1}: {name}{fullest}")


def _runners_up(report: ParallelismReport) -> Iterator[Block]:
    yield Break()
    yield Table(
        [
            Column("next best", least=24), Column("step", right=True), Column("slower", right=True),
            Column("memory", right=True),
        ],
        [
            (
                other.strategy,
                format_duration(other.step_seconds),
                f"{other.slower:.2f}x",
                format_bytes(other.memory_bytes),
            )
            for other in report.runners_up
        ],
    )  # fmt: skip


def _families(report: ParallelismReport) -> Iterator[Block]:
    yield Break()
    yield Table(
        [Column("best with", least=20), Column("layout", least=24), Column("slower", right=True)],
        [(best.family, best.layout, f"{best.slower:.2f}x") for best in report.families],
    )


def _scaling(curve: ScalingCurve) -> Iterator[Block]:
    yield Break()
    yield Table(
        [
            Column("GPUs", right=True), Column("batch", right=True, expendable=1), Column("step", right=True),
            Column("samples/s", right=True), Column("efficiency", right=True), Column("", expendable=2),
        ],
        [_scaling_row(point) for point in curve.points],
    )  # fmt: skip
    if curve.best is None:
        yield Sentence("The step fits on none of these numbers of GPUs")
        return
    fixed = "in all" if curve.is_batch_fixed else "for each"
    best = f"Best number of GPUs: {curve.best} (same batch {fixed})"
    yield Sentence(f"{best}; doubling is worth it up to {curve.knee}")


def _scaling_row(point: ScalingPoint) -> tuple[str, ...]:
    bar = "█" * max(1, round(min(1.0, point.efficiency) * _BAR))
    return (
        str(point.devices),
        str(point.global_batch),
        format_duration(point.step_seconds),
        f"{point.samples_per_second:,.1f}" if point.fits else "does not fit",
        f"{point.efficiency:.0%}" if point.fits else "",
        bar if point.fits else "",
    )


# ---------------------------------------------------------------- the whole job


def job_blocks(job: Job, usd_per_million_tokens: float | None = None) -> Iterator[Block]:
    """The answer: time, money, energy, and what is least certain about them."""
    seconds, count = job.seconds, job.steps_interval
    doubt = "" if count.p10 == count.p90 else f" (80 % between {count.p10:,.0f} and {count.p90:,.0f})"
    yield Sentence(
        f"Job of {job.steps:,} step{'' if job.steps == 1 else 's'}{doubt}: {format_duration(seconds.p50)} "
        f"(80 % between {format_duration(seconds.p10)} and {format_duration(seconds.p90)})",
        Tone.KEY,
    )
    figures = [
        Figure("cost", _cost(job)),
        *_of_tokens(usd_per_million_tokens),
        Figure("energy", _energy(job)),
        Figure("checkpoints", _saving(job)),
    ]
    if job.uncertainty:
        widest = job.uncertainty[0]
        moves = (
            f"which alone moves the time by -{format_duration(widest.below_seconds)} to "
            f"+{format_duration(widest.above_seconds)}"
        )
        figures.append(Figure("least certain", widest.source, moves))
    yield Figures(figures)
    yield notes(job.notes, indent=1)


def _of_tokens(usd_per_million: float | None) -> Iterator[Figure]:
    if usd_per_million is not None:
        yield Figure("tokens", f"{format_money(usd_per_million)} per million")


def job_parts(job: Job) -> Iterator[Block]:
    """What the time of the job goes to."""
    yield Break()
    yield Table(
        [
            Column("job"), Column("time", right=True), Column("share", right=True),
            Column("80 % between", right=True, expendable=2), Column("by", least=20, expendable=1),
        ],
        [_job_row(part, job.seconds.p50) for part in job.parts],
    )  # fmt: skip


def _job_row(part: JobPart, total: float) -> tuple[str, ...]:
    low, high = part.interval.p10, part.interval.p90
    between = "" if low == high else f"{format_duration(low)} - {format_duration(high)}"
    return part.name, format_duration(part.seconds), f"{part.seconds / total:.1%}", between, part.source


def _cost(job: Job) -> str:
    if job.usd is None or job.price is None:
        return "not known"
    usd = job.usd
    return (
        f"{format_money(usd.p50)} (80 % between {format_money(usd.p10)} and {format_money(usd.p90)}) at "
        + " and ".join(_rate(price) for price in job.price.each)
    )


def _rate(price: Price) -> str:
    machines = f"{price.machines} x " if price.machines > 1 else ""
    return f"{machines}{format_money(price.usd_per_machine_hour)} an hour, {price.source}"


def _energy(job: Job) -> str:
    if job.energy is None:
        return "not known"
    energy = job.energy
    text = (
        f"{amount(energy.kwh.p50)} kWh (80 % between {amount(energy.kwh.p10)} and {amount(energy.kwh.p90)})"
    )
    if energy.co2_kg is not None:
        text += f", {amount(energy.co2_kg.p50)} kg of CO2 at {energy.grams_per_kwh:,.0f} g/kWh"
    return text


def _saving(job: Job) -> str:
    saving = job.saving
    return (
        f"{saving.times:,.0f} of {format_bytes(saving.bytes)}, one every "
        f"{format_duration(saving.every_seconds)} of work ({saving.every_steps:,} steps); "
        f"{expected_interruptions(job.interruptions)}"
    )
