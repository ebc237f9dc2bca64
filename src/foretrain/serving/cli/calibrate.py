"""`foretrain calibrate`: learn from what was measured, on this machine or by the user; list and forget it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

<<<<<<< HEAD
from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file
from foretrain.serving.requests.calibrate import (
    CalibrateRequest,
    CalibrationRequest,
    ExportCalibrationRequest,
    ImportCalibrationRequest,
    ListCalibrationsRequest,
)
=======
from foretrain.decoding import FILE, SWITCH, TEXT, number, option
from foretrain.panels import HERE, MODEL, STORED, TRACES
from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file, write_file
from foretrain.serving.requests import Request
from foretrain.workloads.options import MODEL_NAME, BatchOption, PhaseOptions, TrainingOptions

if TYPE_CHECKING:
    from foretrain.learning.user_calibration.fitting import Accuracy, WorkerFit
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.prediction.corrections.files import CalibrationFile
    from foretrain.prediction.corrections.timings import MeasuredStep
    from foretrain.prediction.operators.cpu import CpuCalibration
    from foretrain.serving.verbs.calibrating import GpuLearned, MachineLearned, RunsLearned


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(Request, BatchOption, TrainingOptions, PhaseOptions):
    """Your own timings, this machine, stored runs, or a profiler's trace."""

    VERB = "calibrate"
    COMMON = ("here", "runs", "trace", "json")

    timings: Path | None = option(
        FILE, "CSV of model,device,batch,step_seconds and optional columns of options.", positional=True,
        metavar="TIMINGS",
    )  # fmt: skip
    here: bool = option(
        SWITCH, "Time operators on this machine: its GPU, or its CPU as `here`.", default=False, panel=HERE
    )
    seconds: float = option(
        number(at_least=0.1), "With `here`: how long to measure.", default=75.0, panel=HERE
    )
    runs: bool = option(
        SWITCH, "Fit this machine to stored runs of CPU workers.", default=False, panel=STORED
    )
    model: str | None = option(
        MODEL_NAME,
        "With `runs`: only runs of this model. With `trace`: the traced model.",
        complete="model",
        panel=MODEL,
    )
    device: str | None = option(
        TEXT, "With `runs`: only runs on this device.", complete="device", panel=STORED
    )
    campaign: str | None = option(
        TEXT, "With `runs`: only runs of this campaign.", metavar="NAME", panel=STORED
    )
    store: str | None = option(
        TEXT,
        "With `runs`: the store, a file or a database URL (default: yours).",
        metavar="URL",
        panel=STORED,
    )
    held_out: str = option(
        TEXT,
        "With `runs`: models to test on: `each` left out in turn, or `half` of them or names, never fitted.",
        default="each",
        metavar="MODELS",
        panel=STORED,
    )
    trace: Path | None = option(
        FILE, "A trace of torch.profiler, .json or .json.gz, of `model` on `on`.", panel=TRACES
    )
    on: str | None = option(
        TEXT, "With `trace`: the device it was made on.", metavar="DEVICE", complete="device", panel=TRACES
    )
>>>>>>> main


def run(request: CalibrateRequest, output: Output) -> None:
    """Learn from one source."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    with _progress(request) as progress:
        answer = verbs.calibrate(request, progress)
    print_answer(answer, output.json)


@contextmanager
def _progress(request: CalibrateRequest) -> Iterator[Callable[[str, float], None]]:
    """A bar for what takes a given time, else a spinner."""
    from foretrain.serving.cli.terminal import spinner

    if request.here:
        with _progress_bar("Timing this machine") as bar:
            yield bar
        return
    title = "Learning from runs" if request.runs else "Predicting what was measured"
    with spinner(title if request.trace is None else f"Reading {request.trace}") as say:
        yield lambda doing, _: say(doing)


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[str, float], None]]:
    """A bar with the time left on a terminal, else a line now and then.

    The yielded function says what is being done and which share of all is done.
    """
    if not sys.stderr.isatty():
        yield _lines_now_and_then(title)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(title, total=1.0)
        yield lambda doing, share: bars.update(bar, completed=share, description=f"{title}: {doing}")


_LINE_SECONDS = 15.0
"""How often progress is written where no bar can be drawn."""


def _lines_now_and_then(title: str) -> Callable[[str, float], None]:
    start = last = time.monotonic()

    def say(doing: str, share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _LINE_SECONDS:
            last = now
            left = f", about {(now - start) * (1 - share) / share:.0f} s left" if share > 0 else ""
            sys.stderr.write(f"{title}: {doing}, {share:.0%} done{left}\n")

    return say


def list_calibrations(request: ListCalibrationsRequest, output: Output) -> None:
    """Print all stored calibrations."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.list_calibrations(request), output.json)


def show_calibration(request: CalibrationRequest, output: Output) -> None:
    """Print one calibration with its provenance and content."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.show_calibration(request), output.json)


<<<<<<< HEAD
def forget_calibration(request: CalibrationRequest, output: Output) -> None:
=======
    if learned.timings:
        print_line()
        print_table(
            [Column("all-reduce between 2 processes"), Column("time", right=True)],
            [(format_bytes(each.bytes), format_duration(each.seconds)) for each in learned.timings],
        )
    if learned.note:
        print_line(f"All-reduce: {learned.note}.")


def _show_gpu(learned: GpuLearned) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    timings, calibration = learned.timings, learned.calibration
    clock = timings.clock_hertz
    watched = f", clock {clock[0] / 1e9:.2f} to {clock[1] / 1e9:.2f} GHz" if clock else ""
    print_line(f"{timings.device_name}: {len(timings.timings)} operators timed{watched}", "bold")
    if timings.skipped:
        print_line(f"Left out, as they do not fit its memory: {timings.skipped} trials.", "yellow")
    rows = [
        (row.phase.value, row.kind.value, f"{row.measured_seconds / row.predicted_seconds:.2f}")
        for row in learned.profile.kinds
    ]
    print_table([Column("phase"), Column("operators"), Column("measured / predicted", right=True)], rows)
    print_line(f"Kept as {calibration.name}. Now: foretrain predict MODEL --on {calibration.device}")


def _show_machine(calibration: CpuCalibration, file: Path) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bandwidth, format_flop

    rate = format_flop(calibration.flop_per_second, "FLOP/s")
    bandwidth = format_bandwidth(calibration.bytes_per_second)
    print_line(f"here: {calibration.threads} threads, at best {rate} and {bandwidth}", "bold")
    columns = [
        Column("operators"),
        Column("shapes", right=True),
        Column("call", right=True),
        Column("at most", right=True),
        Column("error on shapes left out", right=True),
    ]
    rows = []
    for name, fit in calibration.families.items():
        each = fit.seconds_per
        most = format_flop(1 / each["FLOP"], "FLOP/s") if "FLOP" in each else "-"
        call = f"{each.get('call', 0.0) * 1e6:.1f} us"
        rows.append((name, str(fit.cases), call, most, f"{fit.mean_absolute_error:.0%}"))
    print_table(columns, rows)
    print_line(f"Kept in {file}. Now: foretrain predict MODEL --on here")


# ---------------------------------------------------------------- timings


def _learn_timings(file: Path, json: bool) -> None:
    from foretrain.serving.cli.terminal import print_json, spinner
    from foretrain.serving.verbs.calibrating import learn_timings

    with spinner("Predicting what was measured") as progress:
        learned = learn_timings(file, progress)
    if json:
        print_json(_steps_object(learned.steps, learned.stored))
    else:
        _show_steps(learned.steps, learned.stored)


def _steps_object(steps: tuple[MeasuredStep, ...], stored: int) -> dict[str, Any]:
    from foretrain.encoding import encode
    from foretrain.prediction.corrections.timings import measurements_file

    return {
        "steps": [
            {**encode(step.configuration), "step_seconds": step.step_seconds,
             "predicted_seconds": step.predicted_seconds, "ratio": step.step_seconds / step.predicted_seconds}
            for step in steps
        ],
        "kept": stored,
        "file": str(measurements_file()),
    }  # fmt: skip


_ODD = 3.0
"""Timings farther from their prediction are pointed out: below this, devices and software do differ."""


def _show_steps(steps: tuple[MeasuredStep, ...], stored: int) -> None:
    from foretrain.prediction.corrections.timings import measurements_file
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_duration

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
    print_table(columns, rows)
    odd = [step for step in steps if not 1 / _ODD < step.step_seconds / step.predicted_seconds < _ODD]
    if odd:
        first = odd[0].configuration
        print_line(
            f"Caution: {len(odd)} of {len(steps)} timings are more than {_ODD:g} times off their prediction "
            f"(first: {first.model} on {first.device}); check unit, batch and precision, or undo it with "
            f"`foretrain calibrate forget timings-{first.device}`."
        )
    print_line(f"Timings kept in {measurements_file()} to correct later predictions: {stored}.")


# ---------------------------------------------------------------- stored runs


def _learn_runs(request: CalibrateRequest, json: bool) -> None:
    from foretrain.serving.cli.terminal import print_json, spinner
    from foretrain.serving.verbs.calibrating import RunFilter, learn_runs

    wanted = RunFilter(request.store, request.model, request.device, request.campaign)
    with spinner("Learning from runs") as progress:
        learned = learn_runs(wanted, request.held_out, progress)
    if json:
        print_json(_runs_object(learned))
    else:
        _show_runs(learned)


def _runs_object(learned: RunsLearned) -> dict[str, Any]:
    from foretrain.encoding import encode
    from foretrain.serving.verbs.calibrating import plain

    return {
        "calibrations": [
            {
                "calibration": plain(calibration),
                "before": encode(fit.before),
                "left_out": encode(fit.left_out),
                "held_out_models": list(fit.held_out_models),
                "held_out_before": encode(fit.held_out_before),
                "held_out": encode(fit.held_out),
            }
            for calibration, fit in learned.fits
        ],
        "unused": encode(learned.unused),
    }


def _show_runs(learned: RunsLearned) -> None:
    from foretrain.serving.cli.terminal import print_line

    for calibration, fit in learned.fits:
        print_line(
            f"{calibration.name}: fitted to {fit.samples} runs of {len(fit.models)} models on "
            f"{calibration.device_name}",
            "bold",
        )
        _show_accuracy(fit)
        print_line(f"Kept as {calibration.name}; foretrain calibrate forget {calibration.name} removes it.")
    if learned.unused:
        reasons = dict.fromkeys(each.reason for each in learned.unused)
        print_line(f"Not used: {len(learned.unused)} runs ({'; '.join(list(reasons)[:3])}).", "yellow")


def _show_accuracy(fit: WorkerFit) -> None:
    from foretrain.serving.cli.terminal import Column, print_table

    listed: list[tuple[str, Accuracy | None]] = [
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
    print_table(columns, rows)


# ---------------------------------------------------------------- a trace


def _learn_trace(request: CalibrateRequest, trace: Path, json: bool) -> None:
    from foretrain.errors import InvalidRequest
    from foretrain.serving.cli.terminal import print_json, spinner
    from foretrain.serving.verbs.calibrating import learn_trace, plain
    from foretrain.serving.verbs.predicting import workload

    if request.model is None or request.on is None:
        raise InvalidRequest("--trace needs --model, the traced model, and --on, the device it was made on")
    with spinner(f"Reading {trace}") as progress:
        profile, calibration = learn_trace(workload(request), trace, request.on, progress)
    if json:
        print_json({"profile": profile.to_dict(), "calibration": plain(calibration)})
    else:
        _show_kinds(profile, calibration)


def _show_kinds(profile: Profile, calibration: CalibrationFile) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_duration

    rows = [
        (
            row.phase.value,
            row.kind.value,
            format_duration(row.compared.measured_seconds),
            format_duration(row.compared.predicted_seconds or 0.0),
            f"{row.compared.ratio:.2f}",
        )
        for row in profile.operators
        if row.compared.ratio is not None
    ]
    titles = ("measured", "predicted", "ratio")
    columns = [Column("phase"), Column("operators"), *(Column(title, right=True) for title in titles)]
    print_table(columns, rows)
    print_line(f"Kept as {calibration.name}; later predictions on {calibration.device} are corrected by it.")


# ---------------------------------------------------------------- what there is


@dataclass(frozen=True, kw_only=True)
class ListRequest(Request):
    """All calibrations."""

    VERB = "list"


@dataclass(frozen=True, kw_only=True)
class NameRequest(Request):
    """One calibration."""

    VERB = "show"

    name: str = option(
        TEXT, "A calibration as `calibrate list` names it.", required=True, positional=True, metavar="NAME"
    )


@dataclass(frozen=True, kw_only=True)
class ExportRequest(NameRequest):
    """One calibration, and the file to write."""

    VERB = "export"

    file: Path = option(FILE, "The file to write.", required=True, positional=True)


@dataclass(frozen=True, kw_only=True)
class ImportRequest(Request):
    """A calibration file."""

    VERB = "import"

    file: Path = option(
        FILE, "A file that `calibrate export` wrote, here or on another machine.", required=True,
        positional=True,
    )  # fmt: skip


def run_list(_: ListRequest, output: Output) -> None:
    """All stored calibrations."""
    from foretrain.learning.user_calibration.catalogue import calibrations
    from foretrain.serving.cli.terminal import Column, print_json, print_line, print_table
    from foretrain.serving.verbs.calibrating import plain

    stored = calibrations()
    if output.json:
        print_json([{**plain(each), "content": None} for each in stored])
        return
    if not stored:
        print_line("There are no calibrations yet. See: foretrain calibrate --help")
        return
    columns = [
        Column("name"), Column("kind"), Column("device"), Column("made on"), Column("samples", right=True),
        Column("spread", right=True),
    ]  # fmt: skip
    rows = [
        (each.name, each.kind, each.device, each.created_on, str(each.samples), f"{each.residual_spread:.0%}")
        for each in stored
    ]
    print_table(columns, rows)


def run_show(request: NameRequest, output: Output) -> None:
    """One calibration with its provenance and content."""
    from foretrain.learning.user_calibration.catalogue import calibration_named
    from foretrain.serving.cli.terminal import Column, print_json, print_line, print_table
    from foretrain.serving.verbs.calibrating import plain

    known = calibration_named(request.name)
    if output.json:
        print_json(plain(known))
        return
    print_line(f"{known.name}: {known.device_name}", "bold")
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
    print_table([Column("what"), Column("value")], rows)
    constants = known.content.get("constants")
    if isinstance(constants, dict):
        print_line()
        print_table(
            [Column("constant"), Column("value", right=True)],
            [(name, f"{value:.4g}") for name, value in constants.items()],
        )


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def run_forget(request: NameRequest, output: Output) -> None:
>>>>>>> main
    """Remove a calibration."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.forget_calibration(request), output.json)


def export_calibration(request: ExportCalibrationRequest, output: Output) -> None:
    """Write a calibration as a file that another machine can import."""
<<<<<<< HEAD
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer
=======
    from foretrain.learning.user_calibration.catalogue import calibration_named
    from foretrain.prediction.corrections.files import as_text
    from foretrain.serving.cli.terminal import print_json, print_line
    from foretrain.serving.verbs.calibrating import plain
>>>>>>> main

    check_file("FILE", request.file)
    print_answer(verbs.export_calibration(request), output.json)


def import_calibration(request: ImportCalibrationRequest, output: Output) -> None:
    """Validate and store a calibration file."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_answer

    print_answer(verbs.import_calibration(request), output.json)


COMMAND = CommandFamily(
    {
        "list": ("List all calibrations.", Command(ListCalibrationsRequest, Output, list_calibrations)),
        "show": (
            "Show a calibration and what it was fitted on.",
            Command(CalibrationRequest, Output, show_calibration),
        ),
        "forget": (
            "Remove a calibration and its effect on predictions.",
            Command(CalibrationRequest, Output, forget_calibration),
        ),
        "export": (
            "Write a calibration to a portable file.",
            Command(ExportCalibrationRequest, Output, export_calibration),
        ),
        "import": (
            "Validate and store a calibration file.",
            Command(ImportCalibrationRequest, Output, import_calibration),
        ),
    },
    "Calibrations are stored in your data directory and correct later predictions for the same model or "
    "device.",
    Command(
        CalibrateRequest,
        Output,
        run,
        "Optional columns of TIMINGS: precision, seq_len, image_size, optimizer, attention, channels_last, "
        "compile.",
        (
            "foretrain calibrate --here",
            "foretrain calibrate timings.csv",
            "foretrain calibrate --runs --campaign seeds --held-out half",
            "foretrain calibrate --trace trace.json.gz --model resnet50 --on rtx3090 --batch 64",
        ),
    ),
)
