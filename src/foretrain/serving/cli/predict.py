"""`foretrain predict`: what a training step, and the whole job, take on given hardware."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, SWITCH, number, option
from foretrain.serving.cli.frame import Command, Output, check_file, write_file
from foretrain.serving.cli.job_text import show_job, show_job_parts
from foretrain.serving.cli.parallelism_text import show_layout, show_parallelism, show_split
from foretrain.serving.cli.terminal import (
    Column,
    print_infeasible,
    print_json,
    print_line,
    print_notes,
    print_table,
    spinner,
)
from foretrain.serving.requests import OUTPUT, PredictRequest
from foretrain.serving.wording import as_flags, probability, training_words
from foretrain.units import format_bytes, format_duration

if TYPE_CHECKING:
    from foretrain.facts.devices import Device
    from foretrain.jobs.epoch import Epoch
    from foretrain.jobs.predict import JobPrediction
    from foretrain.prediction.advice.bottleneck import Bottleneck
    from foretrain.prediction.advice.changes import Advice
    from foretrain.prediction.answer import MemoryAnswer, Prediction, StepAnswer, StepPart

_MOST_PARTS = 12
_SMALLEST_SHARE = 0.001
_RISKY = 0.1
"""A higher chance of running out of memory is shown as a warning."""


@dataclass(frozen=True, kw_only=True)
class PredictOutput(Output):
    """What `predict` prints, writes and draws."""

    timeline: Path | None = option(
        FILE, "Write the streams of the step as a Chrome trace (Perfetto).", panel=OUTPUT
    )
    plot: Path | None = option(FILE, "Draw how the step scales into this .png or .svg file.", panel=OUTPUT)
    check: bool = option(SWITCH, "Exit with 1 if it does not fit.", default=False, panel=OUTPUT)
    confidence: float = option(
        number(above=0, at_most=1),
        "Probability with which it must fit, for `check`.",
        default=0.5,
        panel=OUTPUT,
    )


def run(request: PredictRequest, output: PredictOutput) -> int:
    """Predict, write the files asked for, and print."""
    from foretrain.answers import Infeasible
    from foretrain.errors import EXIT_INFEASIBLE
    from foretrain.serving import verbs

    check_file("--timeline", output.timeline)
    with spinner(f"Predicting {request.model}") as progress:
        answer = verbs.predict(request, progress)
    if isinstance(answer, Infeasible):
        print_infeasible(answer, output.json)
        return EXIT_INFEASIBLE if output.check else 0
    if output.timeline is not None:
        _write_timeline(answer, output.timeline)
    if output.plot is not None:
        _draw_scaling(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer)
    return EXIT_INFEASIBLE if output.check and not _fits(answer.memory, output.confidence) else 0


def _fits(memory: MemoryAnswer, confidence: float) -> bool:
    return memory.fits and 1 - memory.out_of_memory_probability >= confidence


def _write_timeline(prediction: Prediction, file: Path) -> None:
    """The streams of the step, as a Chrome trace."""
    from foretrain.encoding import to_json
    from foretrain.prediction.timeline import chrome_trace

    title = f"{prediction.workload.source.name} on {prediction.cluster.name}, {prediction.strategy}"
    write_file("--timeline", file, to_json(chrome_trace(prediction.timeline, title)))


def _draw_scaling(prediction: Prediction, file: Path) -> None:
    from foretrain.errors import InvalidRequest
    from foretrain.serving.plots import draw_scaling_curve

    curve = prediction.parallelism.scaling
    if curve is None:
        raise InvalidRequest("--plot draws how a step scales: name more than one device, with --advice")
    draw_scaling_curve(curve, prediction.workload.source.name, file)


COMMAND = Command(
    PredictRequest,
    PredictOutput,
    run,
    "The step: its time, memory and bottleneck, and what would make it faster. With a length (--steps, or "
    "--epochs with --samples): time, cost and energy of the whole job.",
    (
        "foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16 --channels-last",
        "foretrain predict resnet50 --on v100-sxm2-16gb --batch 64 --dataset imagenet-jpeg --storage hdd",
        "foretrain predict llama3-8b --on h100-sxm:8 --strategy zero3 --precision bf16 --batch 1",
        "foretrain predict bert-large --on aws:g5.12xlarge:2 --batch 8 --timeline step.json",
        "foretrain predict llama3-70b --on h100-sxm:8x8 --strategy auto --global-batch 512 --precision bf16",
        "foretrain predict resnet50 --on cluster.yaml --global-batch 256",
        "foretrain predict resnet50 --on aws:g5.xlarge --batch 64 --samples 1281167 --epochs 90 --spot",
    ),
)


def show(prediction: JobPrediction) -> None:
    """The answer first, then what it is made of."""
    from foretrain.facts.devices import device

    report = prediction.parallelism
    is_parallel = prediction.cluster.devices > 1
    print_line(
        f"{prediction.workload.source.name} on {prediction.cluster.name}, {_batch(prediction)}", "bold"
    )
    print_line(training_words(prediction.workload, prediction.tokens // max(1, prediction.batch)))
    if is_parallel:
        show_layout(report)
    if prediction.split is not None:
        show_split(prediction.split)
    _show_step(prediction)
    if prediction.epoch is not None:
        _show_epoch(prediction.epoch)
    if prediction.job is not None:
        show_job(prediction.job)
    _show_memory_line(prediction.memory, prediction.fullest_device)
    _show_bottleneck(prediction.bottleneck, device(prediction.pacing_device))
    print_notes(prediction.notes)
    if is_parallel:
        show_parallelism(report)
    if prediction.job is not None:
        show_job_parts(prediction.job)
    _show_step_parts(prediction.step)
    _show_memory(prediction.memory)


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


def _show_step(prediction: Prediction) -> None:
    """The step, its phases, the throughput, and what no model covers."""
    from foretrain.prediction.step.input_pipeline import COPYING, DECODING, READING

    step, throughput = prediction.step, prediction.throughput
    seconds = step.seconds
    print_line(
        f"Step: {format_duration(seconds.p50)} (80 % between {format_duration(seconds.p10)} and "
        f"{format_duration(seconds.p90)}), {prediction.knowledge_class.sentence}",
        "cyan",
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
    print_line("  " + ", ".join(phases))
    tokens = throughput.tokens_per_second
    speed = f"{throughput.samples_per_second:,.1f} samples/s"
    if tokens is not None:
        speed += f", {tokens:,.0f} tokens/s"
    print_line(f"Throughput: {speed}, MFU {throughput.mfu:.1%}")
    if prediction.coverage.unmodelled:
        unknown = ", ".join(prediction.coverage.unmodelled)
        left = 1 - prediction.coverage.modelled_share
        print_line(f"Not modelled, at least {left:.1%} of the device's time: {unknown}", "yellow")


def _show_epoch(epoch: Epoch) -> None:
    """The time of an epoch, and what it moves."""
    seconds = epoch.seconds
    moved = f"; devices exchange {format_bytes(epoch.moved_bytes)}" if epoch.moved_bytes else ""
    print_line(
        f"Epoch of {epoch.samples:,} samples: {epoch.steps:,} step{'' if epoch.steps == 1 else 's'}, "
        f"{format_duration(seconds.p50)} "
        f"(80 % between {format_duration(seconds.p10)} and {format_duration(seconds.p90)}){moved}"
    )


def _show_memory_line(memory: MemoryAnswer, device: str) -> None:
    """What the fullest device needs, and the largest batch."""
    verdict = "fits" if memory.fits else "does not fit"
    chance = memory.out_of_memory_probability
    print_line(
        f"Memory: {format_bytes(memory.bytes.p50)} "
        f"(80 % between {format_bytes(memory.bytes.p10)} and {format_bytes(memory.bytes.p90)}), {verdict} "
        f"into the {format_bytes(memory.capacity_bytes)} of {device}: {probability(chance)} chance of "
        "running out of memory",
        "red" if not memory.fits else "yellow" if chance > _RISKY else "green",
    )
    print_line(f"Largest batch that fits: {memory.largest_batch or 'none'}")
    if memory.advice:
        print_line(_nearest(memory), "yellow")


def _nearest(memory: MemoryAnswer) -> str:
    """What comes closest to the step as it was asked for and fits, or what needs least."""
    fitting = next((each for each in memory.advice if each.fits), None)
    if fitting is not None:
        return f"It would fit with {as_flags(fitting.change)}, which needs {format_bytes(fitting.bytes)}"
    least = min(memory.advice, key=lambda each: each.bytes)
    return (
        f"No single change makes it fit: {as_flags(least.change)} helps most and still needs "
        f"{format_bytes(least.bytes)}"
    )


def _show_bottleneck(limit: Bottleneck, device: Device) -> None:
    """What limits the step, what would make it faster, and what other hardware would do."""
    kind = device.kind if limit.kind == "gpu" else limit.kind
    print_line(f"Bottleneck: {kind} - {as_flags(limit.verdict)}", "magenta")
    for title, is_what_if in (("what would help", False), ("what if", True)):
        with_gain = (each for each in limit.advice if each.gain is not None)  # others are in the memory table
        rows = [_advice_row(each) for each in with_gain if each.is_what_if == is_what_if]
        if rows:
            print_line()
            print_table(
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


def _show_step_parts(step: StepAnswer) -> None:
    """The parts of a step, longest first."""
    total = step.seconds.p50
    listed = [part for part in step.parts if part.seconds >= _SMALLEST_SHARE * total][:_MOST_PARTS]
    rows = [_part_row(part, f"{part.seconds / total:.1%}") for part in listed]
    rest = total - sum(part.seconds for part in listed)
    if len(listed) < len(step.parts):
        others = f"{len(step.parts) - len(listed)} others"
        rows.append((others, format_duration(rest), f"{rest / total:.1%}", ""))
    hidden = [part for part in step.hidden_parts if part.seconds >= _SMALLEST_SHARE * total]
    rows += [_part_row(part, "overlapped") for part in hidden[:_MOST_PARTS]]
    print_line()
    print_table(
        [
            Column("time of"), Column("time", right=True), Column("share", right=True),
            Column("by", least=20, expendable=1),
        ],
        rows,
    )  # fmt: skip


def _part_row(part: StepPart, share: str) -> tuple[str, ...]:
    return part.name, format_duration(part.seconds), share, part.source


def _show_memory(memory: MemoryAnswer) -> None:
    """The uses of memory, and what would make it fit."""
    print_line()
    rows = [
        (part.name, format_bytes(part.bytes), f"{part.bytes / memory.bytes.p50:.1%}") for part in memory.parts
    ]
    print_table([Column("memory of"), Column("size", right=True), Column("share", right=True)], rows)
    if memory.advice:
        print_line()
        print_table(
            [Column("what would help"), Column("needs", right=True), Column("fits")],
            [
                (as_flags(remedy.change), format_bytes(remedy.bytes), "yes" if remedy.fits else "no")
                for remedy in memory.advice
            ],
        )
