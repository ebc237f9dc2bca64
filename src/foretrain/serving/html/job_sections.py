"""What a job, its step and its memory consist of, and how it scales: sections of any report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrain.estimates import Quantiles
from foretrain.jobs.job import Job, JobPart, Saving
from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
from foretrain.prediction.answer import Prediction, StepPart
from foretrain.serving.html.page import Markup, paragraph, section
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.rendering.html import chart_figure
from foretrain.serving.views.charts import parts_chart, scaling_chart
from foretrain.serving.views.wording import between, percent, sentence
from foretrain.units import format_bytes, format_duration

_HARDLY = 0.05


def job_section(job: Job) -> Markup:
    """What the time of the job goes to, and what is least certain about it."""
    took = format_duration(job.seconds.p50)
    title = f"{took} for {job.steps:,} steps"
    return section(
        "Where the job's time goes",
        *_times(title, "Parts of the job's time, one after the other.", job.parts, job.seconds),
        paragraph(f"{_saved(job.saving)}; {_interruptions(job.interruptions)}."),
        _uncertainty(job),
    )


def step_section(prediction: Prediction) -> Markup:
    """What a step consists of, and what sets its pace."""
    step, throughput = prediction.step, prediction.throughput
    title = f"{format_duration(step.seconds.p50)} a step"
    tokens = throughput.tokens_per_second
    speed = f"{throughput.samples_per_second:,.0f} samples/s"
    speed += "" if tokens is None else f", {tokens:,.0f} tokens/s"
    return section(
        "Where a step's time goes",
        *_times(title, "Parts of one training step that take time.", step.parts, step.seconds),
        paragraph(
            f"{speed}, {percent(throughput.mfu, 1)} of the devices' arithmetic; "
            f"{prediction.knowledge_class.sentence}. {sentence(prediction.bottleneck.verdict)}"
        ),
        _unmodelled(prediction),
    )


def _times(
    title: str, description: str, parts: Sequence[JobPart | StepPart], seconds: Quantiles
) -> tuple[Markup, Markup]:
    """Parts of a time as a bar, and as a table with what each rests on."""
    sizes = [(part.name, part.seconds) for part in parts]
    chart = parts_chart(
        f"{title}, {_range(seconds, format_duration)}", description, sizes, format_duration, seconds
    )
    columns = [Column("part", class_="keep"), Column("time", right=True), Column("share", right=True),
               Column("rests on", class_="source")]  # fmt: skip
    total = sum(part.seconds for part in parts) or 1.0
    rows = [
        (part.name, format_duration(part.seconds), percent(part.seconds / total, 1), part.source)
        for part in parts
        if part.seconds > 0
    ]
    footer = ("total", format_duration(seconds.p50), "", "")
    return Markup(chart_figure(chart)), table(columns, rows, footer=footer)


def memory_section(prediction: Prediction) -> Markup:
    """What the memory of the fullest device goes to, against what it has."""
    memory, device = prediction.memory, prediction.cluster.groups[0].device
    capacity = format_bytes(memory.capacity_bytes)
    verdict = "fits into" if memory.fits else "does not fit into"
    chart = parts_chart(
        f"{format_bytes(memory.bytes.p50)} {verdict} the {capacity} of {device.id}, "
        f"{_range(memory.bytes, format_bytes)}",
        "Memory of the fullest device by use, against all it has.",
        [(part.name, part.bytes) for part in memory.parts],
        format_bytes,
        memory.bytes,
        memory.capacity_bytes,
    )
    largest = f"{memory.largest_batch:,}" if memory.largest_batch else "none"
    return section(
        "Memory",
        Markup(chart_figure(chart)),
        paragraph(f"Largest batch for each device that fits: {largest}."),
    )


def scaling_section(curve: ScalingCurve | None) -> Markup:
    """What more or fewer devices would do, where that was predicted."""
    if curve is None:
        return Markup("")
    fixed = "the same batch in all" if curve.is_batch_fixed else "the same batch for each"
    columns = [
        Column("GPUs", right=True), Column("batch in all", right=True), Column("step", right=True),
        Column("samples/s", right=True), Column("efficiency", right=True), Column("fits"),
    ]  # fmt: skip
    rows = [_scaling_row(point) for point in curve.points]
    marked = frozenset(number for number, point in enumerate(curve.points) if point.devices == curve.best)
    chart = Markup(chart_figure(scaling_chart(curve))) if len(curve.points) > 1 else ""
    verdict = f"With {fixed}, the step fits on none of these numbers of GPUs."
    if curve.best is not None:
        verdict = (
            f"With {fixed}, {curve.best} GPUs train most samples a second; "
            f"doubling is worth it up to {curve.knee}."
        )
    return section(
        "More or fewer GPUs",
        paragraph(verdict),
        chart,
        table(columns, rows, marked=marked),
    )


def _scaling_row(point: ScalingPoint) -> tuple[Cell | str, ...]:
    return (
        f"{point.devices:,}",
        f"{point.global_batch:,}",
        format_duration(point.step_seconds),
        f"{point.samples_per_second:,.0f}",
        percent(point.efficiency),
        "yes" if point.fits else "no",
    )


def _uncertainty(job: Job) -> Markup:
    if not job.uncertainty:
        return Markup("")
    rows = [
        (one.source, f"−{format_duration(one.below_seconds)}", f"+{format_duration(one.above_seconds)}")
        for one in job.uncertainty
    ]
    columns = [
        Column("what is uncertain"),
        Column("alone moves the time by", right=True),
        Column("", right=True),
    ]
    return table(columns, rows, class_="slim")


def _unmodelled(prediction: Prediction) -> Markup:
    unknown = prediction.coverage.unmodelled
    if not unknown:
        return Markup("")
    left = 1 - prediction.coverage.modelled_share
    return paragraph(f"Not modelled, at least {percent(left, 1)} of the device's time: {', '.join(unknown)}.")


def _range(quantiles: Quantiles, write: Callable[[float], str]) -> str:
    return f"{between(write(quantiles.p10), write(quantiles.p90))} (thin line)"


def _saved(saving: Saving) -> str:
    if round(saving.times) <= 1:
        return f"Saved once, {format_bytes(saving.bytes)}"
    return (
        f"Saved {saving.times:,.0f} times, {format_bytes(saving.bytes)} each, every "
        f"{format_duration(saving.every_seconds)} of work ({saving.every_steps:,} steps)"
    )


def _interruptions(count: float) -> str:
    if count < _HARDLY:
        return "no interruption is expected"
    return f"{count:,.2g} interruptions are expected"
