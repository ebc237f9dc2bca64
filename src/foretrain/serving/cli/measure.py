"""`foretrain measure -- COMMAND`: run a training command unchanged, watch it, keep what was measured."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests.measure import MeasureRequest

if TYPE_CHECKING:
    from foretrain.measuring.watching.watch import Live
    from foretrain.serving.verbs.measuring import Measured


@dataclass(frozen=True, kw_only=True)
class MeasureOutput(Output):
    """What `measure` draws."""

    plot: Path | None = option(
        FILE, "Plot steps, resources and bursts to this .png or .svg file.", panel=OUTPUT
    )


def run(request: MeasureRequest, output: MeasureOutput) -> int:
    """Run and watch the command; its exit code is that of foretrain."""
    from foretrain.serving.cli.terminal import print_answer
    from foretrain.serving.rendering.charts import check_format
    from foretrain.serving.verbs import measuring

    if output.plot is not None:
        check_format(output.plot)
    line = StatusLine()
    answer = measuring.measure(request, measuring.Watcher(line.say, _note, line.show, line.hide, output.json))
    if answer.problem:
        sys.stderr.write(f"error: {answer.problem}\n")
    with nullcontext() if output.json else redirect_stdout(sys.stderr):
        print_answer(answer, output.json)
    if output.plot is not None:
        _draw(answer, output.plot)
    return answer.exit_code


def _note(text: str) -> None:
    sys.stderr.write(f"foretrain: {text}\n")


def _draw(answer: Measured, file: Path) -> None:
    """Draw the run; what fails here is reported and does not change the exit code."""
    from foretrain.errors import ForetrainError
    from foretrain.serving.rendering.charts import save_chart
    from foretrain.serving.views.charts import run_chart

    try:
        save_chart(run_chart(answer.report), file)
    except (ForetrainError, OSError) as error:
        sys.stderr.write(f"error: {file} is not drawn: {error}\n")


COMMAND = Command(
    MeasureRequest,
    MeasureOutput,
    run,
    "Runs the command unchanged and returns its exit code. Step times come from `foretrain.step()` calls "
    "in the script, or from the progress output of tqdm, Keras, Lightning, the Hugging Face Trainer or the "
    "script itself. The report goes to stderr. With --json, the JSON goes to stdout and the output of the "
    "command to stderr. A missing command exits with 127, as in a shell.",
    (
        "foretrain measure -- python train.py --epochs 3",
        "foretrain measure --model resnet18 --on here --batch 32 -- python train.py",
        "foretrain measure --plot run.png -- torchrun --nproc_per_node 2 train.py",
    ),
    wraps=True,
)


class StatusLine:
    """A line on the terminal that shows the progress while the command prints nothing."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_shown = False

    def show(self, live: Live) -> None:
        """Draw the line anew, unless the command is in the middle of one."""
        if live.at_line_start:
            self.say(status_text(live))

    def say(self, text: str) -> None:
        """Draw the line anew."""
        if self._is_terminal:
            sys.stderr.write(f"\r\x1b[2K\x1b[2m{text}\x1b[0m")
            sys.stderr.flush()
            self._is_shown = True

    def hide(self) -> None:
        """Remove the line before something else is written."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._is_shown = False


def status_text(live: Live) -> str:
    """`foretrain: 120/1000 steps, 35.0 ms per step, 30.8 s left`."""
    from foretrain.units import format_duration

    if not live.steps:
        return f"foretrain: {format_duration(live.seconds)}, no steps seen yet"
    total = "" if live.total is None else f"/{live.total}"
    parts = [f"foretrain: {live.steps}{total} steps"]
    if live.step_seconds is not None:
        parts.append(f"{format_duration(live.step_seconds)} per step")
    left = live.seconds_left
    parts.append(
        f"{format_duration(live.seconds)} so far" if left is None else f"{format_duration(left)} left"
    )
    return ", ".join(parts)
