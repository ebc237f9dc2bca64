"""Calibrations: what was learned from timings, a machine, runs or a trace, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from foretrain.serving.views.blocks import Block, Break, Column, Heading, Page, Sentence, Table, Tone
from foretrain.units import format_bandwidth, format_bytes, format_duration, format_flop

if TYPE_CHECKING:
    from foretrain.learning.user_calibration.fitting import FitAccuracy, WorkerFit
    from foretrain.serving.verbs.calibrating import (
        CalibrationAnswer,
        CalibrationList,
        GpuLearned,
        MachineLearned,
        RunsLearned,
        TimingsLearned,
        TraceLearned,
    )

_ODD = 3.0
"""Timings farther from their prediction are pointed out: below this, devices and software do differ."""


def machine_page(answer: MachineLearned) -> Page:
    """The timed operators of this machine's CPU, and its all-reduce."""
    return Page.of("This machine", _machine(answer))


def _machine(answer: MachineLearned) -> Iterator[Block]:
    operators = answer.operators
    rate = format_flop(operators.flop_per_second, "FLOP/s")
    bandwidth = format_bandwidth(operators.bytes_per_second)
    yield Heading(f"here: {operators.threads} threads, at best {rate} and {bandwidth}")
    titles = ("shapes", "call", "at most", "error on shapes left out")
    rows = []
    for name, fit in operators.families.items():
        each = fit.seconds_per
        most = format_flop(1 / each["FLOP"], "FLOP/s") if "FLOP" in each else "-"
        call = f"{each.get('call', 0.0) * 1e6:.1f} us"
        rows.append((name, str(fit.cases), call, most, f"{fit.mean_absolute_error:.0%}"))
    yield Table([Column("operators"), *(Column(title, right=True) for title in titles)], rows)
    yield Sentence(f"Kept in {answer.file}. Now: foretrain predict MODEL --on here")
    if answer.timings:
        yield Break()
        yield Table(
            [Column("all-reduce between 2 processes"), Column("time", right=True)],
            [(format_bytes(each.bytes), format_duration(each.seconds)) for each in answer.timings],
        )
    if answer.note:
        yield Sentence(f"All-reduce: {answer.note}.")


def gpu_page(answer: GpuLearned) -> Page:
    """The timed operators of a GPU beside their predictions."""
    return Page.of(answer.timings.device_name, _gpu(answer))


def _gpu(answer: GpuLearned) -> Iterator[Block]:
    timings, calibration = answer.timings, answer.calibration
    clock = timings.clock_hertz
    watched = f", clock {clock[0] / 1e9:.2f} to {clock[1] / 1e9:.2f} GHz" if clock else ""
    yield Heading(f"{timings.device_name}: {len(timings.timings)} operators timed{watched}")
    if timings.skipped:
        yield Sentence(f"Left out, as they do not fit its memory: {timings.skipped} trials.", Tone.WARNING)
    rows = [
        (row.phase.value, row.kind.value, f"{row.measured_seconds / row.predicted_seconds:.2f}")
        for row in answer.profile.kinds
    ]
    yield Table([Column("phase"), Column("operators"), Column("measured / predicted", right=True)], rows)
    yield Sentence(f"Kept as {calibration.name}. Now: foretrain predict MODEL --on {calibration.device}")


def timings_page(answer: TimingsLearned) -> Page:
    """The user's timings beside their predictions; those far off are pointed out."""
    return Page.of("Timings", _timings(answer))


def _timings(answer: TimingsLearned) -> Iterator[Block]:
    steps = answer.steps
    rows = [
        (
            step.configuration.model,
            step.configuration.on,
            str(step.configuration.batch),
            format_duration(step.step_seconds),
            format_duration(step.predicted_seconds),
            f"{step.step_seconds / step.predicted_seconds:.2f}",
        )
        for step in steps
    ]
    titles = ("batch", "measured", "predicted", "ratio")
    columns = [Column("model"), Column("device"), *(Column(title, right=True) for title in titles)]
    yield Table(columns, rows)
    odd = [step for step in steps if not 1 / _ODD < step.step_seconds / step.predicted_seconds < _ODD]
    if odd:
        first = odd[0].configuration
        yield Sentence(
            f"Caution: {len(odd)} of {len(steps)} timings are more than {_ODD:g} times off their prediction "
            f"(first: {first.model} on {first.device}); check unit, batch and precision, or undo it with "
            f"`foretrain calibrate forget timings-{first.device}`."
        )
    yield Sentence(f"Timings kept in {answer.file} to correct later predictions: {answer.stored}.")


def runs_learned_page(answer: RunsLearned) -> Page:
    """The accuracy of each machine's fit, before and after."""
    return Page.of("Fitted to runs", _runs(answer))


def _runs(answer: RunsLearned) -> Iterator[Block]:
    for calibration, fit in answer.fits:
        yield Heading(
            f"{calibration.name}: fitted to {fit.samples} runs of {len(fit.models)} models on "
            f"{calibration.device_name}"
        )
        yield _accuracy(fit)
        yield Sentence(
            f"Kept as {calibration.name}; foretrain calibrate forget {calibration.name} removes it."
        )
    if answer.unused:
        reasons = dict.fromkeys(each.reason for each in answer.unused)
        some = "; ".join(list(reasons)[:3])
        yield Sentence(f"Not used: {len(answer.unused)} runs ({some}).", Tone.WARNING)


def _accuracy(fit: WorkerFit) -> Table:
    listed: list[tuple[str, FitAccuracy | None]] = [
        ("before, as predicted before the runs", fit.before),
        ("after, each model by a fit to the others", fit.left_out),
        ("held-out models before", fit.held_out_before),
        ("held-out models after", fit.held_out),
    ]
    titles = ("runs", "mean error", "median", "bias", "in the 80 % interval")
    columns = [Column("accuracy"), *(Column(title, right=True) for title in titles)]
    rows = [
        (
            name,
            str(errors.cases),
            f"{errors.mean:.1%}",
            f"{errors.median:.1%}",
            f"{errors.bias:+.1%}",
            f"{errors.coverage:.0%}",
        )
        for name, errors in listed
        if errors is not None
    ]
    return Table(columns, rows)


def trace_learned_page(answer: TraceLearned) -> Page:
    """Kinds of operators, measured and predicted."""
    rows = [
        (
            row.phase.value,
            row.kind.value,
            format_duration(row.compared.measured_seconds),
            format_duration(row.compared.predicted_seconds or 0.0),
            f"{row.compared.ratio:.2f}",
        )
        for row in answer.profile.operators
        if row.compared.ratio is not None
    ]
    titles = ("measured", "predicted", "ratio")
    columns = [Column("phase"), Column("operators"), *(Column(title, right=True) for title in titles)]
    kept = answer.calibration
    text = f"Kept as {kept.name}; later predictions on {kept.device} are corrected by it."
    return Page.of(kept.name, [Table(columns, rows), Sentence(text)])


def calibration_list_page(answer: CalibrationList) -> Page:
    """A row for each calibration."""
    if not answer.calibrations:
        text = "There are no calibrations yet. See: foretrain calibrate --help"
        return Page.of("Calibrations", [Sentence(text)])
    columns = [
        Column("name"), Column("kind"), Column("device"), Column("made on"), Column("samples", right=True),
        Column("spread", right=True),
    ]  # fmt: skip
    rows = [
        (each.name, each.kind, each.device, each.created_on, str(each.samples), f"{each.residual_spread:.0%}")
        for each in answer.calibrations
    ]
    return Page.of("Calibrations", [Table(columns, rows)])


def calibration_page(answer: CalibrationAnswer) -> Page:
    """A calibration with its provenance, or what was done with it."""
    known = answer.calibration
    texts = {
        "forgotten": f"Forgot {known.name}; predictions are as they were before it.",
        "exported": f"Wrote {known.name} to {answer.file}.",
        "imported": f"Imported {known.name}: {known.samples} samples of {known.created_on}.",
    }
    if answer.done in texts:
        return Page.of(known.name, [Sentence(texts[answer.done])])
    return Page.of(known.name, _calibration(answer))


def _calibration(answer: CalibrationAnswer) -> Iterator[Block]:
    known = answer.calibration
    yield Heading(f"{known.name}: {known.device_name}")
    software = ", ".join(f"{name} {version}" for name, version in known.software.items() if version)
    rows = [
        ("kind", known.kind),
        ("made on", known.created_on),
        ("foretrain", known.foretrain),
        ("software", software or "-"),
        *((name, _text(value)) for name, value in known.fitted_on.items()),
        ("samples", str(known.samples)),
        ("residual spread", f"{known.residual_spread:.1%}"),
    ]
    yield Table([Column("what"), Column("value")], rows)
    constants = known.content.get("constants")
    if isinstance(constants, dict):
        yield Break()
        yield Table(
            [Column("constant"), Column("value", right=True)],
            [(name, f"{value:.4g}") for name, value in constants.items()],
        )


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
