"""`foretrain measure -- COMMAND`: run a training command unchanged, watch it, keep what was measured."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import MeasureRequest

if TYPE_CHECKING:
    from foretrain.measuring.watching.watch import Live, Watched
    from foretrain.store.runs import PredictionMade, Run

_NODE_VARIABLES = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID")
_NODES_VARIABLES = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")


@dataclass(frozen=True, kw_only=True)
class MeasureOutput(Output):
    """What `measure` draws."""

    plot: Path | None = option(
        FILE, "Plot steps, resources and bursts to this .png or .svg file.", panel=OUTPUT
    )


def run(request: MeasureRequest, output: MeasureOutput) -> int:
    """Run and watch the command; its exit code is that of foretrain."""
    from foretrain.measuring.watching import keeping
    from foretrain.measuring.watching.watch import WatchRequest, run_of, watch
    from foretrain.serving.rendering.charts import check_format

    if output.plot is not None:
        check_format(output.plot)
    node, nodes = _place(request)
    stores = not request.no_store and node == 0
    if stores:
        keeping.check_store(request.store)
        _recover(request.store)
    line = StatusLine()
    watched = watch(
        WatchRequest(
            command=request.command,
            setting=request.setting,
            interval_seconds=request.interval,
            prediction=_predicted(request),
            join=request.join,
            node=node,
            nodes=nodes,
            output_to_stderr=output.json,
        ),
        line.show,
        line.hide,
    )
    gathered = watched.gathered
    if request.join is not None and node == 0:
        gathered = keeping.joined_nodes(request.join, nodes, request.wait)
    measured = run_of(gathered)
    _finish(request, output, watched, measured, stores)
    assert measured.exit_code is not None
    return watched.gathered.end.exit_code or 0 if watched.gathered.end is not None else 1


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
        if self._is_terminal and live.at_line_start:
            sys.stderr.write(f"\r\x1b[2K\x1b[2m{status_text(live)}\x1b[0m")
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


def _place(request: MeasureRequest) -> tuple[int, int]:
    """The number of this node and of all nodes: as given, of torchrun's arguments, or of Slurm."""
    from foretrain.errors import InvalidRequest

    if request.join is None:
        for name in ("node", "nodes"):
            if getattr(request, name) is not None:
                raise InvalidRequest(f"`{name}` is for several nodes that share a folder: give `join` too")
        return 0, 1
    node = (
        request.node if request.node is not None else _number("node-rank", request.command, _NODE_VARIABLES)
    )
    nodes = request.nodes or _number("nnodes", request.command, _NODES_VARIABLES)
    if node is None or nodes is None:
        raise InvalidRequest("`join` requires `node` and `nodes` where neither torchrun nor Slurm has them")
    if node >= nodes:
        raise InvalidRequest(f"`node` is {node}, but {nodes} nodes are numbered 0 to {nodes - 1}")
    return node, nodes


def _number(name: str, command: Sequence[str], variables: Sequence[str]) -> int | None:
    """A number among the arguments of a launcher (`--node-rank 1`, `--node_rank=1`) or in the environment."""
    line = " ".join(command)
    match = re.search(rf"--{name.replace('-', '[-_]')}[ =](\d+)\b", line)
    if match is not None:
        return int(match[1])
    given = (os.environ.get(variable, "") for variable in variables)
    return next((int(text) for text in given if text.isdecimal()), None)


def _predicted(request: MeasureRequest) -> PredictionMade | None:
    """The prediction, made before the run; a setting that cannot be predicted is refused before it, too."""
    if request.model is None or request.on is None:
        return None
    from foretrain.serving.cli.terminal import spinner
    from foretrain.serving.verbs.run_predictions import predicted

    with spinner(f"Predicting {request.model}"):
        return predicted({name: value for name, value in request.setting.items() if name != "steps"})


def _recover(store: str | None) -> None:
    from foretrain.measuring.watching.keeping import recover

    for recovered in recover(store):
        started = f"{recovered.started_at:%Y-%m-%d %H:%M} UTC"
        _note(f"run {recovered.id}, started {started} and not stored at its end, is stored now")


def _finish(
    request: MeasureRequest, output: MeasureOutput, watched: Watched, measured: Run, stores: bool
) -> None:
    """Store, draw and print; what fails here is reported and does not change the exit code."""
    from foretrain.errors import ForetrainError
    from foretrain.measuring.watching.keeping import keep, rescue
    from foretrain.measuring.watching.report import report_of
    from foretrain.serving.cli.run_text import show_report
    from foretrain.serving.cli.terminal import print_json
    from foretrain.serving.rendering.charts import save_chart
    from foretrain.serving.views.charts import run_chart

    report = report_of(measured)
    place = None
    if stores:
        try:
            place = keep(measured, request.store)
        except ForetrainError as error:
            _problem(f"the run is not stored: {error}", f"what was gathered is in {rescue(watched)}")
    if request.join is None and (place is not None or not stores):
        watched.journal.unlink(missing_ok=True)
    if output.json:
        print_json({**report.to_dict(), "store": place})
    else:
        with redirect_stdout(sys.stderr):
            show_report(report, place)
    if output.plot is not None:
        try:
            save_chart(run_chart(report), output.plot)
        except (ForetrainError, OSError) as error:
            _problem(f"{output.plot} is not drawn: {error}")


def _note(text: str) -> None:
    sys.stderr.write(f"foretrain: {text}\n")


def _problem(*sentences: str) -> None:
    sys.stderr.write(f"error: {'; '.join(sentences)}\n")
