"""A measured run as text: steps, prediction, resources, bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrain.serving.cli.terminal import Column, print_line, print_table
from foretrain.serving.views.wording import between, percent
from foretrain.store.runs import NODE, UNITS, Resource
from foretrain.units import format_bandwidth, format_bytes, format_duration

if TYPE_CHECKING:
    from foretrain.measuring.watching.report import Report, ResourceUse
    from foretrain.prediction.resources.bursts import Bursts


_NO_VARIATION = 1e-9
"""Below it all steps are equal: a log printed one time for all of them."""


def show_report(report: Report, place: str | None) -> None:
    """The tables: steps, prediction, resources, bursts."""
    run = report.run
    exit_text = "" if run.exit_code in (0, None) else f" (exit code {run.exit_code})"
    print_line()
    print_line(f"Run {run.id}: {run.status.value}{exit_text} after {format_duration(run.seconds)}", "bold")
    if run.message:
        print_line(f"Message: {run.message}")
    _show_steps(report)
    _show_resources(report.resources)
    _show_bursts(report.bursts)
    if place is not None:
        print_line(f"Stored in {place}. Again: foretrain runs show {run.id[:8]}")


def _show_steps(report: Report) -> None:

    summary, made = report.run.summary, report.run.prediction
    if summary is None:
        print_line("No steps: call foretrain.step() at the end of each step, or print progress.", "yellow")
        return
    print_line(
        f"Step: {format_duration(summary.seconds)}, "
        f"{between(format_duration(summary.p10_seconds), format_duration(summary.p90_seconds))}; "
        f"{summary.steps} steps after {summary.warm_up_steps} of warm-up, from {summary.source}"
    )
    waiting = "unknown" if summary.input_share is None else percent(summary.input_share, 1)
    variation = percent(summary.variation, 1) if summary.variation > _NO_VARIATION else "unknown"
    print_line(f"Variation (standard deviation / mean): {variation}; waiting for input: {waiting}")
    if made is not None:
        interval = between(format_duration(made.p10_seconds), format_duration(made.p90_seconds))
        ratio = report.measured_over_predicted
        print_line(
            f"Predicted before the run: {format_duration(made.p50_seconds)}, {interval} ({made.knowledge}); "
            f"measured / predicted = {ratio:.2f}"
        )
    if report.is_disturbed:
        cores = report.run.environment.cores
        print_line(
            f"Other processes kept {report.other_cores:.1f} of {cores} cores busy; "
            "steps may be shorter on a quiet machine.",
            "yellow",
        )
    if len(report.workers) > 1:
        columns = [Column("worker", right=True), Column("node", right=True), Column("steps", right=True)]
        columns += [Column(title, right=True) for title in ("step", "p10", "p90", "variation")]
        rows = [
            (
                str(each.worker), str(each.node), str(each.summary.steps),
                format_duration(each.summary.seconds), format_duration(each.summary.p10_seconds),
                format_duration(each.summary.p90_seconds), percent(each.summary.variation, 1),
            )
            for each in report.workers
        ]  # fmt: skip
        print_table(columns, rows)


def _show_resources(uses: Sequence[ResourceUse]) -> None:

    if not uses:
        return
    columns = [
        Column("resource"),
        Column("of"),
        *(Column(title, right=True) for title in ("mean", "p95", "maximum")),
    ]
    several = len({use.node for use in uses}) > 1
    rows = [
        (
            use.resource.value.replace("_", " "),
            _owner(use.worker, use.node if several else None, use.label),
            *(_amount(use.resource, value) for value in (use.mean, use.p95, use.highest)),
        )
        for use in uses
        if use.highest > 0
    ]
    print_table(columns, rows)


def _show_bursts(bursts: Sequence[Bursts]) -> None:

    if not bursts:
        return
    columns = [Column("bursts of"), Column("of"), Column("pattern")]
    columns += [Column(title, right=True) for title in ("burst amount", "burst duration", "idle duration")]
    several = len({each.node for each in bursts}) > 1
    rows = [
        (
            each.resource.value.replace("_", " "),
            _owner(each.worker, each.node if several else None, each.label),
            each.pattern.value,
            *(
                (_amount(each.resource, each.burst_amount), format_duration(each.burst_duration))
                if each.spans
                else ("-", "-")
            ),
            format_duration(each.idle_duration) if each.idle_duration else "-",
        )
        for each in bursts
    ]
    print_table(columns, rows)


def _owner(worker: int, node: int | None, label: str) -> str:
    """`worker 1`, `node 0, eth0`."""
    parts = [] if node is None else [f"node {node}"]
    if worker != NODE:
        parts.append(f"worker {worker}")
    elif node is None and not label:
        parts.append("node")
    return ", ".join([*parts, *([label] if label else [])])


def _amount(resource: Resource, value: float) -> str:
    """A value in the unit of its resource."""
    unit = UNITS[resource]
    formats: Mapping[str, Any] = {"bytes": format_bytes, "bytes/s": format_bandwidth, "share": percent}
    if unit in formats:
        return str(formats[unit](value))
    return f"{value / 1e9:.2f} GHz" if unit == "Hz" else f"{value:.2f} {unit}"
