"""`foretrain resources`: bursts and idle gaps of a step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OUTPUT, ResourcesRequest

if TYPE_CHECKING:
    from foretrain.prediction.resources.consumption import Consumption, Figure, ResourceBursts
    from foretrain.prediction.resources.what_if import ConsumptionAnswer


@dataclass(frozen=True, kw_only=True)
class ResourcesOutput(Output):
    """How it is printed."""

    plot: Path | None = option(FILE, "Draw the bursts on a time axis (PNG, SVG or PDF).", panel=OUTPUT)


def run(request: ResourcesRequest, output: ResourcesOutput) -> None:
    """Print the four resources, and the table of changes."""
    from foretrain.answers import Infeasible
    from foretrain.serving.cli.terminal import print_infeasible, print_json, spinner
    from foretrain.serving.consumption import resources
    from foretrain.serving.plots import check_format, draw_consumption

    if output.plot is not None:
        check_format(output.plot)
    with spinner(f"Predicting {request.model}") as progress:
        answer = resources(request, progress)
    if isinstance(answer, Infeasible):
        print_infeasible(answer, output.json)
        return
    if output.plot is not None:
        draw_consumption(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer)


COMMAND = Command(
    ResourcesRequest,
    ResourcesOutput,
    run,
    details="Burst amount, burst duration and idle duration of computing, memory, network transmit and "
    "receive of one worker, from the timeline of the step or by the Inspector, a graph network trained on "
    "measured runs.",
    examples=(
        "foretrain resources resnet50 --on v100-sxm2-16gb:1x2 --network ethernet-10g --strategy ps-sync",
        "foretrain resources resnet50 --on v100-sxm2-16gb --what-if gpu=rtx2080ti --what-if batch=64",
        "foretrain resources gpt2 --on a100-sxm-80gb:8 --strategy fsdp --plot bursts.svg",
    ),
)


def show(answer: ConsumptionAnswer) -> None:
    """Print bursts and idle gaps of each resource."""
    from foretrain.serving.cli.terminal import Column, print_line, print_notes, print_table
    from foretrain.units import format_duration

    base = answer.consumption
    step = format_duration(base.step_seconds.p50)
    where = f"{base.cluster.name}, {base.strategy}, batch {base.batch}"
    title = f"{base.workload.source.name} on {where}: step {step}"
    if base.cycle_seconds != base.step_seconds.p50:
        title += f", cycle of a worker {format_duration(base.cycle_seconds)}"
    print_line(title, "bold")
    columns = [
        Column("resource"), Column("pattern"), Column("burst", right=True), Column("for", right=True),
        Column("idle", right=True), Column("for", right=True),
    ]  # fmt: skip
    print_table(columns, [(_name(each, base), *_cells(each)) for each in base.resources])
    if answer.what_if:
        print_line()
        _show_changes(answer)
    print_line()
    print_line(f"Method: {base.method}" + (f" ({base.reason})" if base.reason else ""))
    print_notes(base.notes)


def _name(each: ResourceBursts, base: Consumption) -> str:
    name = each.name.replace("_", " ")
    return f"{name}, {base.link}" if base.link and each.name in ("transmit", "receive") else name


def _cells(each: ResourceBursts) -> tuple[str, ...]:
    from foretrain.prediction.resources.bursts import Pattern
    from foretrain.prediction.resources.consumption import format_level
    from foretrain.units import format_duration

    def level(figure: Figure) -> str:
        text = format_level(figure.p50, each.unit)
        if figure.p10 is None or figure.p90 is None:
            return text
        return f"{text} ({format_level(figure.p10, each.unit)} to {format_level(figure.p90, each.unit)})"

    def duration(figure: Figure) -> str:
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


def _show_changes(answer: ConsumptionAnswer) -> None:
    from foretrain.answers import Infeasible
    from foretrain.serving.cli.terminal import Column, print_table

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
    print_table(columns, rows)


def _changed_cells(answer: Consumption) -> tuple[str, ...]:
    from foretrain.prediction.resources.bursts import Pattern
    from foretrain.prediction.resources.consumption import format_level
    from foretrain.units import format_duration

    def cell(each: ResourceBursts) -> str:
        if each.pattern is Pattern.IDLE:
            return format_level(each.idle_amount, each.unit)
        level = format_level(each.burst_amount.p50, each.unit)
        if each.pattern is Pattern.BUSY:
            return level
        burst, idle = format_duration(each.burst_duration.p50), format_duration(each.idle_duration.p50)
        return f"{level} for {burst}, idle {idle}"

    return (format_duration(answer.step_seconds.p50), *(cell(each) for each in answer.resources))
