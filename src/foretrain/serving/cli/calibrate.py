"""`foretrain calibrate`: learn from what was measured, on this machine or by the user; list and forget it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file
from foretrain.serving.requests.calibrate import (
    CalibrateRequest,
    CalibrationRequest,
    ExportCalibrationRequest,
    ImportCalibrationRequest,
    ListCalibrationsRequest,
)


def run(request: CalibrateRequest, output: Output) -> None:
    """Learn from one source."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import calibrating

    with _progress(request) as progress:
        answer = calibrating.calibrate(request, progress)
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
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import calibrating

    print_answer(calibrating.list_calibrations(request), output.json)


def show_calibration(request: CalibrationRequest, output: Output) -> None:
    """Print one calibration with its provenance and content."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import calibrating

    print_answer(calibrating.show_calibration(request), output.json)


def forget_calibration(request: CalibrationRequest, output: Output) -> None:
    """Remove a calibration."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import calibrating

    print_answer(calibrating.forget_calibration(request), output.json)


def export_calibration(request: ExportCalibrationRequest, output: Output) -> None:
    """Write a calibration as a file that another machine can import."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import calibrating

    check_file("FILE", request.file)
    print_answer(calibrating.export_calibration(request), output.json)


def import_calibration(request: ImportCalibrationRequest, output: Output) -> None:
    """Validate and store a calibration file."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.verbs import calibrating

    print_answer(calibrating.import_calibration(request), output.json)


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
