"""What a step consists of and what it uses: its trace, the bursts of its resources, two jobs on a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import Block, Break, Column, Heading, Page, Sentence, Table, Tone
from foretrain.serving.views.wording import notes
from foretrain.units import MIB, format_bytes, format_duration, format_flop

if TYPE_CHECKING:
    from foretrain.prediction.resources.consumption import (
        Consumption,
        ConsumptionAnswer,
        ResourceBursts,
        ResourceFigure,
    )
    from foretrain.prediction.resources.pairing import PairAnswer
    from foretrain.workloads.summary import PhaseSummary, Trace, TraceSummary


def trace_page(answer: Trace) -> Page:
    """What a training step consists of: parameters, FLOP, bytes, phases, layers."""
    return Page.of(answer.workload.source.name, _trace(answer))


def resources_page(answer: ConsumptionAnswer) -> Page:
    """Bursts and idle gaps of each resource, and what changes would do."""
    base = answer.consumption
    return Page.of(f"{base.workload.source.name} on {base.cluster.name}", _resources(answer))


def pair_page(answer: PairAnswer) -> Page:
    """How two jobs share a device and a link."""
    names = " and ".join(job.workload.source.name for job in answer.jobs)
    return Page.of(f"{names} on {answer.jobs[0].cluster.name}", _pair(answer))


def _trace(answer: Trace) -> Iterator[Block]:
    """Print what the step consists of."""

    summary = answer.step
    yield Heading(f"{answer.workload.source.name}: one training step, {_sizes(summary)}")
    rows = [
        ("parameters", f"{summary.parameters:,} ({summary.parameter_bytes / MIB:,.2f} MiB)"),
        ("trainable", f"{summary.trainable_parameters:,}"),
        ("forward + backward", format_flop(summary.forward_backward_flop)),
        ("saved activations", format_bytes(summary.activation_bytes)),
        (
            "layer outputs and gradients",
            f"{summary.forward_backward_bytes_per_sample / MIB:,.2f} MiB a sample",
        ),
    ]
    yield Table([Column("what"), Column("how much", right=True)], rows)
    yield Break()
    phases = {"forward": summary.forward, "backward": summary.backward, "optimizer": summary.optimizer}
    columns = [Column("phase"), *(Column(title, right=True) for title in _PHASE_TITLES)]
    yield Table(columns, [(name, *_phase_cells(phase)) for name, phase in phases.items()])
    yield Break()
    total = sum(summary.bytes_by_kind.values()) or 1.0
    yield Table(
        [Column("kind"), Column("memory traffic", right=True), Column("share", right=True)],
        [
            (kind, format_bytes(moved), f"{moved / total:.1%}")
            for kind, moved in summary.bytes_by_kind.items()
        ],
    )
    if summary.unknown:
        yield Sentence(
            f"No FLOP rule for: {', '.join(summary.unknown)} (their traffic is counted)", Tone.WARNING
        )
    yield notes(summary.notes)
    if answer.with_layers:
        yield Break()
        yield from _layers(summary)


_PHASE_TITLES = ("operators", "kernels", "matrix FLOP", "vector FLOP", "memory traffic")


def _phase_cells(phase: PhaseSummary) -> tuple[str, ...]:

    return (
        f"{phase.operators:,}",
        f"{phase.kernels:,}",
        format_flop(phase.flop),
        format_flop(phase.vector_flop),
        format_bytes(phase.bytes),
    )


def _sizes(summary: TraceSummary) -> str:
    samples = f"{summary.samples} sample{'s' if summary.samples != 1 else ''}"
    return f"{samples}, {summary.tokens:,} tokens" if summary.tokens else samples


def _layers(summary: TraceSummary) -> Iterator[Block]:

    titles = ("output", "parameters", "forward", "backward", "forward traffic")
    columns = [Column("layer"), Column("type"), *(Column(title, right=True) for title in titles)]
    rows = [
        (
            layer.path or "(root)",
            layer.type,
            " ".join("x".join(map(str, shape)) for shape in layer.output_shapes),
            f"{layer.parameters:,}",
            format_flop(layer.forward_flop),
            format_flop(layer.backward_flop),
            format_bytes(layer.forward_bytes),
        )
        for layer in summary.layers
    ]
    yield Table(columns, rows)


def _resources(answer: ConsumptionAnswer) -> Iterator[Block]:
    """Print bursts and idle gaps of each resource."""

    base = answer.consumption
    step = format_duration(base.step_seconds.p50)
    where = f"{base.cluster.name}, {base.strategy}, batch {base.batch}"
    title = f"{base.workload.source.name} on {where}: step {step}"
    if base.cycle_seconds != base.step_seconds.p50:
        title += f", cycle of a worker {format_duration(base.cycle_seconds)}"
    yield Heading(title)
    columns = [
        Column("resource"), Column("pattern"), Column("burst", right=True), Column("for", right=True),
        Column("idle", right=True), Column("for", right=True),
    ]  # fmt: skip
    yield Table(columns, [(_name(each, base), *_cells(each)) for each in base.resources])
    if answer.what_if:
        yield Break()
        yield from _changes(answer)
    yield Break()
    yield Sentence(f"Method: {base.method}" + (f" ({base.reason})" if base.reason else ""))
    yield notes(base.notes)


def _name(each: ResourceBursts, base: Consumption) -> str:
    name = each.name.replace("_", " ")
    return f"{name}, {base.link}" if base.link and each.name in ("transmit", "receive") else name


def _cells(each: ResourceBursts) -> tuple[str, ...]:
    from foretrain.prediction.resources.bursts import Pattern
    from foretrain.prediction.resources.consumption import format_level

    def level(figure: ResourceFigure) -> str:
        text = format_level(figure.p50, each.unit)
        if figure.p10 is None or figure.p90 is None:
            return text
        return f"{text} ({format_level(figure.p10, each.unit)} to {format_level(figure.p90, each.unit)})"

    def duration(figure: ResourceFigure) -> str:
        text = format_duration(figure.p50)
        if figure.p10 is None or figure.p90 is None:
            return text
        return f"{text} ({format_duration(figure.p10)} to {format_duration(figure.p90)})"

    idle = format_level(each.idle_amount, each.unit)
    if each.pattern is Pattern.IDLE:
        return each.pattern.value, "", "", idle, "throughout"
    if each.pattern is Pattern.BUSY:
        return each.pattern.value, level(each.burst_amount), "throughout", "", ""
    return (
        each.pattern.value, level(each.burst_amount), duration(each.burst_duration), idle,
        duration(each.idle_duration),
    )  # fmt: skip


def _changes(answer: ConsumptionAnswer) -> Iterator[Block]:
    from foretrain.answers import Infeasible

    base = answer.consumption
    columns = [
        Column("what if"),
        Column("step", right=True),
        *(Column(_name(each, base).split(",")[0], right=True, least=14) for each in base.resources),
    ]
    rows = [("as asked", *_changed_cells(base))]
    for each in answer.what_if:
        cells = ("", str(each.answer)) if isinstance(each.answer, Infeasible) else _changed_cells(each.answer)
        rows.append((each.change, *cells, *[""] * (len(columns) - 1 - len(cells))))
    yield Table(columns, rows)


def _changed_cells(answer: Consumption) -> tuple[str, ...]:
    from foretrain.prediction.resources.bursts import Pattern
    from foretrain.prediction.resources.consumption import format_level

    def cell(each: ResourceBursts) -> str:
        if each.pattern is Pattern.IDLE:
            return format_level(each.idle_amount, each.unit)
        level = format_level(each.burst_amount.p50, each.unit)
        if each.pattern is Pattern.BUSY:
            return level
        burst, idle = format_duration(each.burst_duration.p50), format_duration(each.idle_duration.p50)
        return f"{level} for {burst}, idle {idle}"

    return (format_duration(answer.step_seconds.p50), *(cell(each) for each in answer.resources))


def _pair(answer: PairAnswer) -> Iterator[Block]:
    """Print how two jobs share a device and a link."""
    from foretrain.prediction.resources.consumption import words

    first = answer.jobs[0]
    yield Heading(f"Two jobs on {first.cluster.name}, {first.strategy}")
    columns = [
        Column("job"), Column("batch", right=True), Column("cycle alone", right=True),
        Column("slowdown", right=True), Column("range", right=True), Column("gpu", least=16),
    ]  # fmt: skip
    rows = [
        (
            job.workload.source.name,
            str(job.batch),
            format_duration(job.cycle_seconds),
            f"{slowdown:.2f}x",
            f"{least:.2f} to {most:.2f}",
            words(job.resources[0]),
        )
        for job, slowdown, least, most in zip(
            answer.jobs, answer.pairing.slowdowns, answer.pairing.least, answer.pairing.most, strict=True
        )
    ]
    yield Table(columns, rows)
    yield Break()
    memory, capacity = format_bytes(answer.memory_bytes), format_bytes(answer.capacity_bytes)
    yield Sentence(f"Memory: {memory} of {capacity}, {'fits' if answer.fits else 'does not fit'}")
    yield Heading(f"Verdict: {answer.verdict}")
