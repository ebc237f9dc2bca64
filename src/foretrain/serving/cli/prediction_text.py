"""A prediction as text: the answer first, then what it is made of."""

from __future__ import annotations

from foretrain.facts.devices import device
from foretrain.jobs.epoch import Epoch
from foretrain.jobs.predict import JobPrediction
from foretrain.prediction.advice.changes import Advice
from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
from foretrain.prediction.answer import MemoryAnswer, ParallelismReport, Prediction, StepAnswer, StepPart
from foretrain.prediction.heterogeneous.report import BatchSplit, GroupShare
from foretrain.prediction.step.input_pipeline import COPYING, DECODING, READING
from foretrain.serving.cli.frame import as_flags
from foretrain.serving.cli.job_text import show_job, show_job_parts
from foretrain.serving.cli.terminal import Column, print_line, print_table
from foretrain.units import format_bytes, format_duration

_INPUT = (READING, DECODING, COPYING)
_MOST_PARTS = 12
_SMALLEST_SHARE = 0.001
_BAR = 24
"""Characters of a bar for perfect scaling."""


def show(prediction: JobPrediction) -> None:
    """Print a prediction."""
    many = prediction.cluster.devices > 1
    print_line(_heading(prediction), "bold")
    if many:
        _show_layout(prediction)
    if prediction.split is not None:
        _show_split(prediction.split)
    _show_step(prediction)
    if prediction.epoch is not None:
        _show_epoch(prediction.epoch)
    if prediction.job is not None:
        show_job(prediction.job)
    _show_memory_line(prediction.memory, prediction.fullest_device)
    _show_bottleneck(prediction)
    for note in prediction.notes:
        print_line(f"Note: {as_flags(note)}", "yellow")
    if many and prediction.split is None:
        _show_parallelism(prediction.parallelism)
    if prediction.job is not None:
        show_job_parts(prediction.job)
    _show_step_parts(prediction.step)
    _show_memory(prediction.memory)


def _heading(prediction: Prediction) -> str:
    cluster, report = prediction.cluster, prediction.parallelism
    named = f"{prediction.workload.source.name} on {cluster.name}"
    if prediction.split is not None:
        return (
            f"{named}: heterogeneous cluster of {cluster.devices} devices in {cluster.nodes} nodes, "
            f"{report.global_batch} samples in all"
        )
    of = "replica" if report.replicas < cluster.devices else "device"
    text = f"{named}, batch {prediction.batch} per {of}"
    if cluster.devices > 1:
        text += f", {report.global_batch} in all"
    return f"{text}, {report.micro_batches} micro-batches" if report.micro_batches > 1 else text


def _show_layout(prediction: Prediction) -> None:
    """The strategy and the network in a line each."""
    report = prediction.parallelism
    text = f"Strategy: {report.strategy}"
    if report.searched:
        text += f", the fastest of {report.fitting} that fit ({report.searched} tried)"
    print_line(text)
    if report.network:
        title = "Network" if prediction.split is None else "Slowest links"
        print_line(f"{title}: " + ", ".join(f"{name} {where}" for where, name in report.network.items()))


def _show_split(split: BatchSplit) -> None:
    """Which group trains on how many samples."""
    print_line(f"Verdict: {split.verdict}", "magenta")
    print_line()
    print_table(
        [
            Column("nodes", least=16), Column("device"), Column("used", right=True),
            Column("batch of each", right=True), Column("samples", right=True),
            Column("step", right=True), Column("computing", right=True, expendable=2),
            Column("memory", right=True, expendable=1), Column("holds", right=True, expendable=3),
        ],
        [_share_row(share, split.global_batch) for share in split.shares],
    )  # fmt: skip
    print_line()


def _share_row(share: GroupShare, global_batch: int) -> tuple[str, ...]:
    used = f"{share.nodes_used} of {share.nodes}"
    holds = f"{share.largest_batch}" + ("" if share.largest_batch < global_batch else " or more")
    if share.seconds is None or share.computing_seconds is None or share.memory_bytes is None:
        return share.group, share.device, used, "left out", "0", "", "", "", holds
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


def _show_step(prediction: Prediction) -> None:
    """The step, its phases, the throughput, and what no model covers."""
    step, throughput = prediction.step, prediction.throughput
    seconds = step.seconds
    print_line(
        f"Step: {format_duration(seconds.p50)} (80 % between {format_duration(seconds.p10)} and "
        f"{format_duration(seconds.p90)}), {prediction.knowledge}",
        "cyan",
    )
    times = {
        "forward": step.forward_seconds,
        "backward": step.backward_seconds,
        "optimizer": step.optimizer_seconds,
        "input": step.input_seconds,
    }
    if step.communication_seconds > 0:
        times["waiting for exchanges"] = step.exposed_communication_seconds
    is_hidden = step.input_seconds > 0 and not any(part.name in _INPUT for part in step.parts)
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


def _show_memory_line(memory: MemoryAnswer, fullest: str) -> None:
    """What the fullest device needs, and the largest batch."""
    verdict = "fits" if memory.fits else "does not fit"
    print_line(
        f"Memory: {format_bytes(memory.bytes.p50)} "
        f"(80 % between {format_bytes(memory.bytes.p10)} and {format_bytes(memory.bytes.p90)}), {verdict} "
        f"into the {format_bytes(memory.capacity_bytes)} of {fullest}",
        "green" if memory.fits else "red",
    )
    print_line(f"Largest batch that fits: {memory.largest_batch or 'none'}")


def _show_bottleneck(prediction: Prediction) -> None:
    """What limits the step, and what would change it."""
    limit = prediction.bottleneck
    kind = device(prediction.pacing_device).kind if limit.kind == "gpu" else limit.kind
    print_line(f"Bottleneck: {kind} - {as_flags(limit.verdict)}", "magenta")
    listed = [advice for advice in limit.advice if advice.gain is not None]
    if listed:
        print_line()
        title = "what would help" if prediction.cluster.devices == 1 else "what if"
        print_table(
            [
                Column(title, least=20), Column("gain", right=True), Column("step", right=True),
                Column("samples/s", right=True), Column("memory", right=True, expendable=1),
            ],
            [_advice_row(advice) for advice in listed],
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


def _show_parallelism(report: ParallelismReport) -> None:
    """What is exchanged, what each stage holds, and what more or fewer devices would do."""
    print_line(
        f"Exchanges take {report.coordination_ratio:.0%} as long as computing and move "
        f"{format_bytes(report.moved_bytes)} in a step"
    )
    if report.staleness is not None:
        print_line(f"Gradients are on average {report.staleness:.1f} updates old when they are used")
    if report.exchanges:
        _show_exchanges(report)
    if report.stages:
        print_line()
        for number, name in enumerate(report.stages):
            fullest = " (needs most memory)" if number == report.fullest_stage else ""
            print_line(f"Stage {number + 1}: {name}{fullest}")
    if report.runners_up:
        _show_runners_up(report)
    if report.families:
        print_line()
        print_table(
            [Column("best with", least=20), Column("layout", least=24), Column("slower", right=True)],
            [(best.family, best.layout, f"{best.slower:.2f}x") for best in report.families],
        )
    if report.scaling is not None:
        _show_scaling(report.scaling)


def _show_exchanges(report: ParallelismReport) -> None:
    print_line()
    print_table(
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


def _show_runners_up(report: ParallelismReport) -> None:
    print_line()
    print_table(
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


def _show_scaling(curve: ScalingCurve) -> None:
    print_line()
    print_table(
        [
            Column("GPUs", right=True), Column("batch", right=True, expendable=1), Column("step", right=True),
            Column("samples/s", right=True), Column("efficiency", right=True), Column("", expendable=2),
        ],
        [_scaling_row(point) for point in curve.points],
    )  # fmt: skip
    fixed = "in all" if curve.is_batch_fixed else "for each"
    best = f"Best number of GPUs: {curve.best} (same batch {fixed})"
    print_line(f"{best}; doubling is worth it up to {curve.knee}")


def _scaling_row(point: ScalingPoint) -> tuple[str, ...]:
    bar = "█" * max(1, round(min(1.0, point.efficiency) * _BAR))
    return (
        str(point.devices),
        str(point.global_batch),
        format_duration(point.step_seconds),
        f"{point.samples_per_second:,.1f}" if point.fits else "does not fit",
        f"{point.efficiency:.0%}",
        bar,
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
