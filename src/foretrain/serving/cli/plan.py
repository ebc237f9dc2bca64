"""`foretrain plan`: which machines to rent for a job, among all offers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, SWITCH, TEXT, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, Output, check_file, write_file, write_report
from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_answer, spinner
from foretrain.serving.requests.plan import PlanRequest

if TYPE_CHECKING:
    from foretrain.planning.frontier import Frontier


def launcher_help() -> str:
    """The launch targets, as their registry lists them."""
    from foretrain.planning.launch_files import launch_targets

    return f"Write a launch file: {', '.join(launch_targets())}."


@dataclass(frozen=True, kw_only=True)
class PlanOutput(Output):
    """What `plan` prints and writes."""

    why: str | None = option(
        TEXT,
        "Explain why machines with this name or GPU were not selected; `all` for every machine.",
        panel=OUTPUT,
        metavar="NAME",
    )
    emit: str | None = option(TEXT, launcher_help, panel=OUTPUT, metavar="LAUNCHER")
    emit_to: Path | None = option(
        FILE, "Path of the launch file (default: a standard name in the current folder).", panel=OUTPUT
    )
    script: str | None = option(
        TEXT, "Training command in the launch file (default: train.py).", panel=OUTPUT, metavar="COMMAND"
    )
    html: Path | None = option(FILE, "Write a self-contained HTML report.", panel=OUTPUT)
    check: bool = option(
        SWITCH, "Exit with status 1 if no plan meets the limits.", default=False, panel=OUTPUT,
        flags=("check", "ci"),
    )  # fmt: skip


def run(request: PlanRequest, output: PlanOutput) -> int:
    """Plan, write the files asked for, and print."""
    from foretrain.answers import Infeasible
    from foretrain.errors import EXIT_INFEASIBLE
    from foretrain.serving.verbs import predicting

    _check_files(output)
    with spinner(f"Planning {request.model}") as progress:
        answer = predicting.plan(request, progress, with_prediction=output.html is not None)
    if isinstance(answer, Infeasible):
        print_answer(answer, output.json)
        return EXIT_INFEASIBLE if output.check else 0
    written = _write_files(answer, output)
    with as_far_as_it_is_read():
        print_answer(answer, output.json, written, why=output.why)
    return EXIT_INFEASIBLE if output.check and not answer.meets_limits else 0


def _check_files(output: PlanOutput) -> None:
    """Refuse files that cannot be written before anything is planned."""
    from foretrain.errors import InvalidRequest

    if output.emit is not None:
        from foretrain.planning.launch_files import launch_targets

        launch_targets()[output.emit]
    elif output.emit_to is not None:
        raise InvalidRequest("--emit-to is the file of --emit: give that too")
    elif output.script is not None:
        raise InvalidRequest("--script is the command of a launch file: give --emit LAUNCHER too")
    check_file("--html", output.html)
    check_file("--emit-to", output.emit_to)


def _write_files(answer: Frontier, output: PlanOutput) -> list[str]:
    """Write the files asked for; a line about each."""
    lines = []
    if output.html is not None:
        write_report(output.html, answer, "plan")
        lines.append(f"Report: {output.html}")
    if output.emit is not None:
        lines.append(_write_launch_file(answer, output, output.emit))
    return lines


def _write_launch_file(answer: Frontier, output: PlanOutput, launcher: str) -> str:
    """The launch file of the plan shown; an existing file is replaced only if it was named."""
    import shlex

    from foretrain.errors import InvalidRequest
    from foretrain.planning.launch_files import launch_file, launch_plan, launch_targets

    launched = launch_file(launcher, launch_plan(answer, output.script or "train.py"))
    file = output.emit_to or Path(launched.file_name)
    if output.emit_to is None and file.exists():
        raise InvalidRequest(f"{file} exists already: move it away, or name a file with --emit-to")
    write_file("--emit-to", file, launched.named(file.name).text)
    late = "" if answer.meets_limits else " of that plan, which does not keep the limits"
    start = launch_targets()[launcher].how_to_start.format(file=shlex.quote(str(file)))
    return f"Launch file{late}: {file}; start it with: {start}"


COMMAND = Command(
    PlanRequest,
    PlanOutput,
    run,
    "Compares all offers, single-node and multi-node, across all strategies and batch sizes that fit. "
    "Shows the Pareto front of time and cost, and the probability that each plan meets the deadline and "
    "budget.",
    (
        "foretrain plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h",
        "foretrain plan bert-large --steps 7038 --global-batch 256 --precision fp16 --budget 200usd --spot",
        "foretrain plan llama3-8b --steps 2000 --global-batch 64 --precision bf16 --gpu h100 --max-gpus 16",
        "foretrain plan resnet50 --samples 1281167 --epochs 90 --deadline 6h --html plan.html --emit ray",
    ),
)
