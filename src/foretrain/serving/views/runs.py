"""Stored runs: a list, one in full, several side by side, and predictions compared with them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import (
    Block,
    Break,
    Chart,
    Column,
    Heading,
    Page,
    Sentence,
    Series,
    Table,
    Tone,
)
from foretrain.units import format_bandwidth, format_bytes, format_duration

if TYPE_CHECKING:
    from foretrain.learning.validation import Accuracy, PredictionComparison, Validation
    from foretrain.serving.verbs.stored_runs import (
        RunComparison,
        RunDetails,
        RunList,
        RunsDeleted,
        RunsExported,
        RunsImported,
        ValidateAnswer,
    )
    from foretrain.store.runs import Run, SampleRange

_ID_LENGTH = 8
_MOST_CURVES = 2
_MOST_POINTS = 2000
_LARGE = 999.5
"""From here on numbers have no fraction."""


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
    return f"{value:,.0f} {unit}" if value >= _LARGE else f"{value:.3g} {unit}"


def _signed(error: float | None) -> str:
    """An error as a signed percentage."""
    return "-" if error is None else f"{error:+.1%}"


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs} runs"


# ---------------------------------------------------------------- list


def run_list_page(answer: RunList) -> Page:
    """A table with a row per run."""
    return Page.of("Runs", _run_list(answer))


def _run_list(answer: RunList) -> Iterator[Block]:
    if not answer.runs:
        yield Sentence(
            f"No runs in the store {answer.store} meet the conditions. `foretrain measure -- COMMAND` "
            "stores one."
        )
        return
    columns = [
        Column("run", tone=Tone.NAME),
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
    yield Table(columns, [_row(run) for run in answer.runs])
    more = " There are more: --limit" if answer.has_more else ""
    yield Sentence(f"{_count(len(answer.runs))} in {answer.store}.{more}")


def _row(run: Run) -> tuple[str, ...]:
    measured = None if run.summary is None else run.summary.seconds
    predicted = None if run.prediction is None else run.prediction.p50_seconds
    error = None if not measured or predicted is None else predicted / measured - 1
    return (
        run.id[:_ID_LENGTH],
        f"{run.started_at:%Y-%m-%d %H:%M}",
        str(run.setting.get("model", "-")),
        str(run.setting.get("on", run.environment.device)),
        str(run.setting.get("batch", run.setting.get("global_batch", "-"))),
        str(run.setting.get("strategy", "")),
        run.status.value,
        quantity(measured, "s"),
        quantity(predicted, "s"),
        _signed(error),
        run.campaign or "",
        run.provenance,
    )


# ---------------------------------------------------------------- one run


def run_page(answer: RunDetails) -> Page:
    """Everything about a run except its samples."""
    return Page.of(f"Run {answer.run.id}", _run(answer))


def _run(answer: RunDetails) -> Iterator[Block]:
    run = answer.run
    yield from _facts(run)
    yield from _steps(run, answer.comparison)
    if any(len(each.seconds) for each in run.steps):
        yield _step_chart(run)
    if answer.resources:
        yield _resources(answer.resources)
    else:
        yield Sentence("No resource samples.")


def _facts(run: Run) -> Iterator[Block]:
    ended = run.status.value + ("" if run.exit_code is None else f", exit code {run.exit_code}")
    took = f", {quantity(run.seconds, 's')}" if math.isfinite(run.seconds) else ""
    yield Heading(f"Run {run.id}: {ended}{took}")
    environment = run.environment
    machine = f"{environment.nodes} x {environment.devices_per_node} x {environment.device_name}"
    parts = (
        f"{environment.device} ({machine})",
        environment.cpu,
        f"{environment.cores} cores" if environment.cores else "",
        format_bytes(environment.memory_bytes) if environment.memory_bytes else "",
        environment.driver,
        " ".join(f"{name} {version}" for name, version in environment.versions.items()),
    )
    facts = {
        "started": f"{run.started_at:%Y-%m-%d %H:%M:%S} UTC",
        "command": shlex.join(run.command),
        "setting": " ".join(f"{name}={value}" for name, value in run.setting.items()),
        "environment": ", ".join(filter(None, parts)),
        "provenance": run.provenance,
        "campaign": f"{run.campaign}, trial {run.trial}" if run.campaign else "",
        "message": run.message.strip(),
    }
    yield from (Sentence(f"{name}: {text}", indent=1) for name, text in facts.items() if text)
    yield Break()


def _steps(run: Run, comparison: PredictionComparison | None) -> Iterator[Block]:
    """Prediction beside measurement."""
    summary, made = run.summary, run.prediction
    if summary is None:
        yield Sentence("No step times.")
        return
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
        note = made.knowledge
        if comparison is not None:
            note = f"{made.knowledge}, error {_signed(comparison.error)}{inside[comparison.inside]}"
        quantiles = (made.p10_seconds, made.p50_seconds, made.p90_seconds)
        rows.append(("predicted", *(quantity(each, "s") for each in quantiles), note))
    yield Table(columns, rows)
    yield Break()


def _step_chart(run: Run) -> Chart:
    """The step times of the first workers over the steps, thinned to what a chart can show."""
    drawn = [each for each in run.steps if len(each.seconds)][:_MOST_CURVES]
    count = min(len(each.seconds) for each in drawn)
    every = math.ceil(count / _MOST_POINTS)
    x = [float(place + 1) for place in range(0, count, every)]
    curves = [
        Series(f"worker {each.worker}", x, [1e3 * seconds for seconds in each.seconds[:count:every].tolist()])
        for each in drawn
    ]
    return Chart("Step times", x_label="step", y_label="ms", series=curves, from_zero=True)


def _resources(uses: Sequence[SampleRange]) -> Table:
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
    return Table(columns, rows)


def _whose(use: SampleRange) -> str:
    from foretrain.store.runs import NODE

    whose = f"node {use.node}" if use.worker == NODE else f"worker {use.worker}"
    return f"{whose}, {use.label}" if use.label else whose


# ---------------------------------------------------------------- several runs


def run_comparison_page(answer: RunComparison) -> Page:
    """A column for each run: values, and in brackets ratios to the first."""
    runs = answer.runs
    columns = [Column(""), *(Column(run.id[:_ID_LENGTH], right=True) for run in runs)]
    keys = list(dict.fromkeys(key for run in runs for key in run.setting))
    rows = [
        *((key, *(str(run.setting.get(key, "-")) for run in runs)) for key in keys),
        ("device", *(run.environment.device for run in runs)),
        ("status", *(run.status.value for run in runs)),
    ]
    for figure in answer.figures:
        cells = [
            quantity(value, figure.unit) + ("" if place == 0 or ratio is None else f" ({ratio:.2f}x)")
            for place, (value, ratio) in enumerate(zip(figure.values, figure.ratios, strict=True))
        ]
        rows.append((figure.name, *cells))
    return Page.of("Runs compared", [Table(columns, rows)])


# ---------------------------------------------------------------- files


def exported_page(answer: RunsExported) -> Page:
    """Which file was written."""
    return Page.of("Runs exported", [Sentence(f"{_count(answer.runs)} written to {answer.file}.")])


def imported_page(answer: RunsImported) -> Page:
    """How many runs were new."""
    known = answer.runs - answer.added
    stored = f", {known} were stored already" if known else ""
    return Page.of(
        "Runs imported",
        [Sentence(f"{_count(answer.added)} added{stored}."), Sentence(f"Store: {answer.store}")],
    )


def deleted_page(answer: RunsDeleted) -> Page:
    """How many runs were deleted."""
    text = f"{_count(answer.deleted)} deleted." if answer.deleted else "Nothing was deleted."
    return Page.of("Runs deleted", [Sentence(text)])


# ---------------------------------------------------------------- validation


def validate_page(answer: ValidateAnswer, all_runs: bool = False) -> Page:
    """Errors by model and device, and the worst cases, or every run."""
    return Page.of("Predictions compared with runs", _validate(answer, all_runs))


def _validate(answer: ValidateAnswer, all_runs: bool) -> Iterator[Block]:
    for title, validation in (
        ("Predictions made before the runs", answer.before),
        ("Predictions made now", answer.now),
    ):
        if validation is None:
            yield Sentence(f"{title}: none can be compared.")
        else:
            yield from _validation(title, validation, all_runs)
        yield Break()
    left_out = sum(not each.before for each in answer.skipped)
    yield Sentence(f"{answer.stored_runs - left_out} of {answer.stored_runs} runs compared.")
    groups: dict[str, list[str]] = {}
    for each in answer.skipped:
        with_what = " with a prediction made now" if each.before else ""
        groups.setdefault(f"not compared{with_what}: {each.reason}", []).append(each.run)
    for reason, ids in sorted(groups.items(), key=lambda item: -len(item[1])):
        some = f"{', '.join(ids[:3])}{' ...' if len(ids) > 3 else ''}"
        yield Sentence(f"{len(ids)} {reason} ({some})", indent=1)


def _validation(title: str, validation: Validation, all_runs: bool) -> Iterator[Block]:
    titles = ("runs", "mean error", "median", "p90", "bias", "in interval")
    columns = [Column(""), *(Column(name, right=True) for name in titles)]
    rows = [
        _figures("all runs", validation.overall),
        *(_figures(f"model {name or 'unknown'}", each) for name, each in validation.by_model.items()),
        *(_figures(f"device {name}", each) for name, each in validation.by_device.items()),
    ]
    yield Table(columns, rows, title)
    yield Sentence(
        "Bias is the median signed error: positive where the prediction is too long. The interval is 80 %."
    )
    yield _compared("Every run", validation.runs) if all_runs else _compared("Worst cases", validation.worst)


def _figures(name: str, figures: Accuracy) -> tuple[str, ...]:
    coverage = "-" if figures.coverage is None else f"{figures.coverage:.0%}"
    shares = (f"{figures.mean:.1%}", f"{figures.median:.1%}", f"{figures.p90:.1%}", f"{figures.bias:+.1%}")
    return (name, str(figures.runs), *shares, coverage)


def _compared(title: str, listed: Sequence[PredictionComparison]) -> Table:
    columns = [
        Column("run", tone=Tone.NAME),
        Column("model", least=12),
        Column("on"),
        Column("batch", right=True),
        *(Column(name, right=True) for name in ("measured", "p10", "predicted", "p90", "error")),
        Column("interval"),
    ]
    rows = []
    for each in listed:
        times = (each.measured_seconds, each.p10_seconds, each.predicted_seconds, each.p90_seconds)
        rows.append(
            (
                each.run[:_ID_LENGTH],
                each.model,
                str(each.setting.get("on", each.device)),
                str(each.setting.get("batch", each.setting.get("global_batch", "-"))),
                *map(format_duration, times),
                f"{each.error:+.1%}",
                {True: "holds", False: "missed", None: "-"}[each.inside],
            )
        )
    return Table(columns, rows, title)
