"""`foretrain calibrate`: learn from what was measured, on this machine or by the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import FILE, SWITCH, number, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import Request

if TYPE_CHECKING:
    from foretrain.measuring.step_timings import StepTiming
    from foretrain.prediction.cost_models.user_timings import Configuration, MeasuredStep
    from foretrain.prediction.operators.cpu import CpuCalibration


@dataclass(frozen=True, kw_only=True)
class CalibrateRequest(Request):
    """Your own timings, or this machine."""

    VERB = "calibrate"

    timings: Path | None = option(
        FILE, "CSV of model,device,batch,step_seconds and optional columns of options.", positional=True,
        metavar="TIMINGS",
    )  # fmt: skip
    here: bool = option(SWITCH, "Time operators on this machine's CPU, the device `here`.", default=False)
    seconds: float = option(number(at_least=0.1), "With `here`: how long to measure.", default=75.0)


def run(request: CalibrateRequest, output: Output) -> None:
    """Learn from a file of timings, or time this machine."""
    from foretrain.errors import InvalidRequest

    if request.here == (request.timings is not None):
        raise InvalidRequest("calibrate takes either a file of timings or --here")
    if request.timings is None:
        _calibrate_here(request.seconds, output.json)
    else:
        _learn_from(request.timings, output.json)


COMMAND = Command(
    CalibrateRequest,
    Output,
    run,
    "What is learned is kept in your own folder and corrects later predictions of the same model or device. "
    "Optional columns of TIMINGS: precision, seq_len, image_size, optimizer, attention, channels_last, "
    "compile.",
    ("foretrain calibrate --here", "foretrain calibrate timings.csv"),
)


def _calibrate_here(seconds: float, json: bool) -> None:
    from foretrain.learning.cpu import TimedWork, calibrate
    from foretrain.measuring.micro_benchmarks import run_trials, torch_threads, torch_version
    from foretrain.measuring.this_machine import DEVICE_ID, measure_this_machine
    from foretrain.prediction.operators.cpu import keep
    from foretrain.serving.cli.terminal import print_json

    with _progress_bar("Timing this machine") as progress:
        timed = run_trials(progress, seconds)
        progress("peaks", 1.0)
        calibration = calibrate(
            [TimedWork(item.work, item.seconds) for item in timed],
            DEVICE_ID,
            torch_threads(),
            torch_version(),
        )
        measure_this_machine(
            flop_per_second=calibration.flop_per_second,
            memory_bytes_per_second=calibration.memory_bytes_per_second,
        )
    file = keep(calibration)
    if json:
        print_json(calibration)
    else:
        _show_machine(calibration, file)


@contextmanager
def _progress_bar(title: str) -> Iterator[Callable[[str, float], None]]:
    """A progress bar on a terminal; the yielded function takes the activity and the share completed."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(title, total=1.0)
        yield lambda doing, share: bars.update(bar, completed=share, description=f"{title}: {doing}")


def _show_machine(calibration: CpuCalibration, file: Path) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bandwidth, format_flop

    print_line(
        f"here: {calibration.threads} threads, at best "
        f"{format_flop(calibration.flop_per_second, 'FLOP/s')} and "
        f"{format_bandwidth(calibration.bytes_per_second)}",
        "bold",
    )
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
        rate = format_flop(1 / each["FLOP"], "FLOP/s") if "FLOP" in each else "-"
        call = f"{each.get('call', 0.0) * 1e6:.1f} us"
        rows.append((name, str(fit.cases), call, rate, f"{fit.mean_absolute_error:.0%}"))
    print_table(columns, rows)
    print_line(f"Kept in {file}. Now: foretrain predict MODEL --on here")


def _learn_from(file: Path, json: bool) -> None:
    from foretrain.measuring.step_timings import read_timings
    from foretrain.prediction.cost_models.user_timings import remember
    from foretrain.serving.cli.terminal import print_json, spinner

    read = read_timings(file)
    with spinner("Predicting what was measured") as progress:
        steps = []
        for timing in read:
            progress(f"{timing.configuration.model} on {timing.configuration.device}")
            steps.append(_predicted(timing, file))
    kept = remember(steps)
    if json:
        print_json(_as_object(steps, len(kept)))
    else:
        _show_steps(steps, len(kept))


def _predicted(timing: StepTiming, file: Path) -> MeasuredStep:
    """The timing together with its prediction; an error names the row that cannot be predicted."""
    from foretrain.errors import ForetrainError, InvalidData
    from foretrain.prediction.cost_models.user_timings import MeasuredStep

    try:
        seconds = _predicted_seconds(timing.configuration)
    except ForetrainError as error:
        raise InvalidData(str(file), str(error), timing.row) from error
    return MeasuredStep(timing.configuration, timing.step_seconds, seconds)


def _predicted_seconds(of: Configuration) -> float:
    from foretrain.facts.devices import device
    from foretrain.prediction.cost_models.step_models import OperatorCostModel
    from foretrain.workloads.requests import WorkloadRequest, workload_of
    from foretrain.workloads.workload import graph_at

    request = WorkloadRequest(
        of.model, of.batch, of.seq_len, of.image_size, of.precision, of.optimizer, of.attention,
        channels_last=of.channels_last, compile=of.compile,
    )  # fmt: skip
    graph = graph_at(workload_of(request), of.batch)
    return OperatorCostModel().estimate(graph, device(of.device)).seconds


def _as_object(steps: list[MeasuredStep], kept: int) -> dict[str, Any]:
    from foretrain.encoding import encode
    from foretrain.prediction.cost_models.user_timings import measurements_file

    return {
        "steps": [
            {**encode(step.configuration), "step_seconds": step.step_seconds,
             "predicted_seconds": step.predicted_seconds, "ratio": step.step_seconds / step.predicted_seconds}
            for step in steps
        ],
        "kept": kept,
        "file": str(measurements_file()),
    }  # fmt: skip


def _show_steps(steps: list[MeasuredStep], kept: int) -> None:
    from foretrain.prediction.cost_models.user_timings import measurements_file
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_duration

    rows = [
        (
            step.configuration.model,
            step.configuration.device,
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
    print_line(f"Timings kept in {measurements_file()} to correct later predictions: {kept}.")
