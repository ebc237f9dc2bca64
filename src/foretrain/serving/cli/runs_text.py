"""Runs as text: tables, and a small plot of the step times on a terminal."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretrain.serving.cli.terminal import Column, print_curves, print_line, print_table
from foretrain.store.runs import NODE, Run
from foretrain.units import format_bandwidth, format_bytes, format_duration

if TYPE_CHECKING:
    from foretrain.learning.validation import RunComparison
    from foretrain.store.figures import RunFigure, SampleRange

_ID_LENGTH = 8
_MOST_CURVES = 2
_MOST_POINTS = 2000


def quantity(value: float | None, unit: str) -> str:
    """A number with its unit, as people write it."""
    if value is None or not math.isfinite(value):
        return "-"
    if unit == "s":
        return format_duration(value)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "bytes/s":
        return format_bandwidth(value)
    if unit == "share":
        return f"{value:.1%}"
    if unit == "Hz":
        return f"{value / 1e6:.0f} MHz"
    return f"{value:.3g} {unit}"


def signed(error: float | None) -> str:
    """An error as a signed percentage."""
    return "-" if error is None else f"{error:+.1%}"


def show_list(runs: Sequence[Run], place: str, has_more: bool) -> None:
    """A table with a row per run."""
    if not runs:
        print_line(
            f"No runs in the store {place} meet the conditions. `foretrain measure -- COMMAND` stores one."
        )
        return
    columns = [
        Column("run", style="bold"),
        Column("started", expendable=2),
        Column("model", least=12),
        Column("on"),
        Column("batch", right=True),
        Column("strategy", expendable=1),
        Column("status"),
        Column("step", right=True),
        Column("predicted", right=True),
        Column("error", right=True),
        Column("campaign", expendable=1),
        Column("provenance", expendable=3),
    ]
    print_table(columns, [_row(run) for run in runs])
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    print_line(f"{count} in {place}." + (" There are more: --limit" if has_more else ""))


def _row(run: Run) -> tuple[str, ...]:
    measured = None if run.summary is None else run.summary.seconds
    predicted = None if run.prediction is None else run.prediction.p50_seconds
    error = None if not measured or predicted is None else predicted / measured - 1
    batch = run.setting.get("batch", run.setting.get("global_batch", "-"))
    return (
        run.id[:_ID_LENGTH],
        f"{run.started_at:%Y-%m-%d %H:%M}",
        str(run.setting.get("model", "-")),
        str(run.setting.get("on", run.environment.device)),
        str(batch),
        str(run.setting.get("strategy", "")),
        run.status.value,
        quantity(measured, "s"),
        quantity(predicted, "s"),
        signed(error),
        run.campaign or "",
        run.provenance,
    )


def show_one(run: Run, uses: Sequence[SampleRange], comparison: RunComparison | None) -> None:
    """Everything about a run except its samples."""
    _show_facts(run)
    if run.summary is None:
        print_line("No step times.")
    else:
        _show_steps(run, comparison)
    _plot_steps(run)
    if uses:
        _show_resources(uses)
    else:
        print_line("No resource samples.")


def _show_facts(run: Run) -> None:
    ended = run.status.value + ("" if run.exit_code is None else f", exit code {run.exit_code}")
    took = f", {quantity(run.seconds, 's')}" if math.isfinite(run.seconds) else ""
    print_line(f"Run {run.id}: {ended}{took}", "bold")
    environment = run.environment
    machine = f"{environment.nodes} x {environment.devices_per_node} x {environment.device_name}"
    facts = {
        "started": f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC",
        "command": shlex.join(run.command),
        "setting": " ".join(f"{name}={value}" for name, value in run.setting.items()),
        "environment": ", ".join(
            filter(
                None,
                (
                    f"{environment.device} ({machine})",
                    environment.cpu,
                    f"{environment.cores} cores" if environment.cores else "",
                    format_bytes(environment.memory_bytes) if environment.memory_bytes else "",
                    environment.driver,
                    " ".join(f"{name} {version}" for name, version in environment.versions.items()),
                ),
            )
        ),
        "provenance": run.provenance,
        "campaign": f"{run.campaign}, trial {run.trial}" if run.campaign else "",
        "message": run.message.strip(),
    }
    for name, text in facts.items():
        if text:
            print_line(f"  {name}: {text}")
    print_line()


def _show_steps(run: Run, comparison: RunComparison | None) -> None:
    """Prediction beside measurement."""
    summary, made = run.summary, run.prediction
    assert summary is not None
    columns = [Column("step"), *(Column(title, right=True) for title in ("p10", "median", "p90"))]
    columns.append(Column("", least=20))
    stalls = "" if summary.input_share is None else f", input stalls {summary.input_share:.1%}"
    spread = "" if math.isnan(summary.variation) else f", variation {summary.variation:.1%}"
    source = f" ({summary.source})" if summary.source else ""
    rows = [
        (
            "measured",
            *(quantity(each, "s") for each in (summary.p10_seconds, summary.seconds, summary.p90_seconds)),
            f"{summary.steps} {'step' if summary.steps == 1 else 'steps'} after {summary.warm_up_steps} of "
            f"warm-up{spread}{stalls}{source}",
        )
    ]
    if made is not None:
        inside = {True: ", interval holds", False: ", outside the interval", None: ""}
        note = (
            f"{made.knowledge}, error {signed(comparison.error)}{inside[comparison.inside]}"
            if comparison
            else ""
        )
        rows.append(
            (
                "predicted",
                *(quantity(each, "s") for each in (made.p10_seconds, made.p50_seconds, made.p90_seconds)),
                note or made.knowledge,
            )
        )
    print_table(columns, rows)
    print_line()


def _plot_steps(run: Run) -> None:
    """The step times of the first workers over the steps."""
    drawn = [each for each in run.steps if len(each.seconds)][:_MOST_CURVES]
    if not drawn:
        return
    count = min(len(each.seconds) for each in drawn)
    every = math.ceil(count / _MOST_POINTS)
    x = [float(place + 1) for place in range(0, count, every)]
    curves: dict[str, Sequence[float]] = {
        f"worker {each.worker}": [1e3 * value for value in each.seconds[:count:every].tolist()]
        for each in drawn
    }
    print_curves("Step times", "step", "ms", x, curves, from_zero=True)


def _show_resources(uses: Sequence[SampleRange]) -> None:
    columns = [
        Column("resource"),
        Column("of"),
        *(Column(title, right=True) for title in ("minimum", "median", "maximum", "samples")),
    ]
    rows = [
        (
            use.resource.value.replace("_", " "),
            _whose(use),
            *(quantity(value, use.unit) for value in (use.minimum, use.median, use.maximum)),
            str(use.samples),
        )
        for use in uses
    ]
    print_table(columns, rows)


def _whose(use: SampleRange) -> str:
    whose = f"node {use.node}" if use.worker == NODE else f"worker {use.worker}"
    return f"{whose}, {use.label}" if use.label else whose


def show_side_by_side(runs: Sequence[Run], figures: Sequence[RunFigure]) -> None:
    """A column for each run: values, and in brackets ratios to the first."""
    columns = [Column(""), *(Column(run.id[:_ID_LENGTH], right=True) for run in runs)]
    keys = list(dict.fromkeys(key for run in runs for key in run.setting))
    rows = [
        *((key, *(str(run.setting.get(key, "-")) for run in runs)) for key in keys),
        ("device", *(run.environment.device for run in runs)),
        ("status", *(run.status.value for run in runs)),
    ]
    for figure in figures:
        cells = [
            quantity(value, figure.unit) + ("" if place == 0 or ratio is None else f" ({ratio:.2f}x)")
            for place, (value, ratio) in enumerate(zip(figure.values, figure.ratios, strict=True))
        ]
        rows.append((figure.name, *cells))
    print_table(columns, rows)
