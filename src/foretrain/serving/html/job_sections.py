"""What a job, its step and its memory consist of, and how it scales: sections of any report."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrain.estimates import Quantiles
from foretrain.jobs.job import Job, JobPart, Saving
from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
from foretrain.prediction.answer import Prediction, StepPart
from foretrain.serving.html.bars import Slice, Stack, stacked_bar
from foretrain.serving.html.charts import LineChart, Point, Series, line_chart
from foretrain.serving.html.page import Markup, paragraph, section
from foretrain.serving.html.scales import Axis, Quantity
from foretrain.serving.html.tables import Cell, Column, table
from foretrain.serving.views.wording import between, percent, sentence
from foretrain.units import format_bytes, format_duration

_HARDLY = 0.05


def job_section(job: Job) -> Markup:
    """What the time of the job goes to, and what is least certain about it."""
    took = format_duration(job.seconds.p50)
    stack = _times(
        f"{took} for {job.steps:,} steps",
        "Parts of the job's time, one after the other.",
        "part of the job",
        job.parts,
        job.seconds,
    )
    return section(
        "Where the job's time goes",
        stacked_bar(stack, format_duration),
        paragraph(f"{_saved(job.saving)}; {_interruptions(job.interruptions)}."),
        _uncertainty(job),
    )


def step_section(prediction: Prediction) -> Markup:
    """What a step consists of, and what sets its pace."""
    step, throughput = prediction.step, prediction.throughput
    stack = _times(
        f"{format_duration(step.seconds.p50)} a step",
        "Parts of one training step that take time.",
        "part of a step",
        step.parts,
        step.seconds,
    )
    tokens = throughput.tokens_per_second
    speed = f"{throughput.samples_per_second:,.0f} samples/s"
    speed += "" if tokens is None else f", {tokens:,.0f} tokens/s"
    return section(
        "Where a step's time goes",
        stacked_bar(stack, format_duration),
        paragraph(
            f"{speed}, {percent(throughput.mfu, 1)} of the devices' arithmetic; "
            f"{prediction.knowledge_class.sentence}. {sentence(prediction.bottleneck.verdict)}"
        ),
        _unmodelled(prediction),
    )


def _times(
    title: str, description: str, part_header: str, parts: Sequence[JobPart | StepPart], seconds: Quantiles
) -> Stack:
    """Parts of a time as a bar, with what each rests on."""
    return Stack(
        title=title,
        subtitle=_range(seconds, format_duration),
        description=description,
        slices=tuple(
            Slice(part.name, part.seconds, format_duration(part.seconds), part.source) for part in parts
        ),
        total_text=format_duration(seconds.p50),
        part_header=part_header,
        value_header="time",
        note_header="rests on",
        ends=(seconds.p10, seconds.p90),
    )


def memory_section(prediction: Prediction) -> Markup:
    """What the memory of the fullest device goes to, against what it has."""
    memory, device = prediction.memory, prediction.cluster.groups[0].device
    capacity = format_bytes(memory.capacity_bytes)
    verdict = "fits into" if memory.fits else "does not fit into"
    stack = Stack(
        title=f"{format_bytes(memory.bytes.p50)} {verdict} the {capacity} of {device.id}",
        subtitle=_range(memory.bytes, format_bytes),
        description="Memory of the fullest device by use, against all it has.",
        slices=tuple(Slice(part.name, part.bytes, format_bytes(part.bytes)) for part in memory.parts),
        total_text=format_bytes(memory.bytes.p50),
        part_header="use of memory",
        value_header="size",
        capacity=memory.capacity_bytes,
        capacity_text=capacity,
        ends=(memory.bytes.p10, memory.bytes.p90),
    )
    largest = f"{memory.largest_batch:,}" if memory.largest_batch else "none"
    return section(
        "Memory",
        stacked_bar(stack, format_bytes),
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
    chart = line_chart(_scaling_chart(curve, fixed)) if len(curve.points) > 1 else ""
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


def _scaling_chart(curve: ScalingCurve, fixed: str) -> LineChart:
    """Samples per second over devices. The ideal line keeps the efficiency of the fewest devices."""
    words = {curve.knee: "worth doubling to here", curve.best: "most samples/s"}
    first = curve.points[0]
    predicted = tuple(
        Point(
            point.devices,
            point.samples_per_second,
            _scaling_tip(point),
            words.get(point.devices, ""),
            is_hollow=not point.fits,
        )
        for point in curve.points
    )
    ideal = tuple(
        Point(point.devices, point.samples_per_second / point.efficiency, "")
        for point in (first, curve.points[-1])
        if point.efficiency > 0
    )
    hollow = " Hollow: does not fit into memory." if any(not point.fits for point in curve.points) else ""
    return LineChart(
        title=f"Samples per second, {fixed}",
        description="Predicted throughput against the number of GPUs, and perfect scaling.",
        x=Axis("GPUs", Quantity.POWERS_OF_TWO),
        y=Axis("samples/s", Quantity.NUMBER),
        series=(Series("perfect scaling", ideal, is_ideal=True), Series("predicted", predicted)),
        caption=hollow.strip(),
    )


def _scaling_tip(point: ScalingPoint) -> str:
    speed = f"{point.samples_per_second:,.0f} samples/s"
    tip = f"{point.devices} GPUs: {speed}, {percent(point.efficiency)} efficient"
    return tip if point.fits else f"{tip}; does not fit"


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
