"""`foretrain runs` and `foretrain validate`: stored runs, files of runs, and predictions beside them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretrain.decoding import SWITCH, option
from foretrain.panels import OUTPUT
from foretrain.serving.cli.frame import Command, CommandFamily, Output, check_file
from foretrain.serving.cli.terminal import print_answer, printing, spinner
from foretrain.serving.requests.runs import (
    CompareRunsRequest,
    DeleteRunsRequest,
    ExportRunsRequest,
    ImportRunsRequest,
    ListRunsRequest,
    ShowRunRequest,
    ValidateRequest,
)
from foretrain.serving.verbs.stored_runs import PUBLIC_SUITES


@dataclass(frozen=True, kw_only=True)
class DeleteOutput(Output):
    """Whether to ask."""

    yes: bool = option(SWITCH, "Delete without asking.", default=False, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class ValidateOutput(Output):
    """What `validate` prints."""

    all: bool = option(SWITCH, "Also a row for every run.", default=False, panel=OUTPUT)


def export_runs(request: ExportRunsRequest, output: Output) -> None:
    """Write runs to a file."""
    from foretrain.serving.verbs import stored_runs

    check_file("FILE", request.file)
    with spinner(f"Writing {request.file}"):
        answer = stored_runs.export_runs(request)
    print_answer(answer, output.json)


def import_runs(request: ImportRunsRequest, output: Output) -> None:
    """Add the runs of a file to the store."""
    from foretrain.serving.verbs import stored_runs

    with spinner(f"Reading {request.file}"):
        answer = stored_runs.import_runs(request)
    print_answer(answer, output.json)


def delete_runs(request: DeleteRunsRequest, output: DeleteOutput) -> None:
    """Delete runs, after a question on a terminal."""
    from foretrain.serving.verbs import stored_runs

    answer = stored_runs.delete_runs(request) if output.yes else stored_runs.delete_runs(request, _confirm)
    print_answer(answer, output.json)


def _confirm(ids: Sequence[str], place: str) -> bool:
    """Ask the person on the terminal."""
    import click

    from foretrain.errors import InvalidRequest

    count = "1 run" if len(ids) == 1 else f"{len(ids)} runs"
    if not sys.stdin.isatty():
        raise InvalidRequest(f"delete asks before it deletes {count}; without a terminal add --yes")
    some = ", ".join(ids) if len(ids) <= 4 else f"{', '.join(ids[:4])} and {len(ids) - 4} more"
    return click.confirm(f"Delete {count} ({some}) from {place}?", err=True)


def validate(request: ValidateRequest, output: ValidateOutput) -> None:
    """Compare, and print."""
    from foretrain.serving.verbs import stored_runs

    with spinner("Predicting the stored runs") as progress:
        answer = stored_runs.validate(request, progress)
    print_answer(answer, output.json, with_runs=output.all)


_OF_RUNS: Mapping[str, tuple[str, Command]] = {
    "list": (
        "List runs, the newest first.",
        Command(
            ListRunsRequest, Output, printing("stored_runs.list_runs"),
            examples=("foretrain runs list", "foretrain runs list --model resnet18 --since 7d --json"),
        ),
    ),
    "show": (
        "Show a run: steps, resources, prediction and measurement.",
        Command(
            ShowRunRequest, Output, printing("stored_runs.show_run"), examples=("foretrain runs show 3f2a",)
        ),
    ),
    "compare": (
        "Compare runs side by side, with ratios to the first.",
        Command(
            CompareRunsRequest, Output, printing("stored_runs.compare_runs"),
            examples=("foretrain runs compare 3f2a 9c01",),
        ),
    ),
    "export": (
        "Write runs to a CSV, Parquet or JSON file.",
        Command(
            ExportRunsRequest, Output, export_runs,
            "Parquet and JSON hold whole runs with steps and resource series; CSV holds one row per run.",
            ("foretrain runs export runs.parquet", "foretrain runs export --campaign seeds runs.csv"),
        ),
    ),
    "import": (
        "Add the runs of a file to the store.",
        Command(
            ImportRunsRequest, Output, import_runs,
            "A file is imported whole or not at all; runs that are stored already are not added again.",
            ("foretrain runs import runs.parquet", "foretrain runs import timings.csv"),
        ),
    ),
    "delete": (
        "Delete runs from the store.",
        Command(
            DeleteRunsRequest, DeleteOutput, delete_runs,
            examples=("foretrain runs delete 3f2a 9c01", "foretrain runs delete --campaign seeds --yes"),
        ),
    ),
}  # fmt: skip

_RUNS = CommandFamily(
    _OF_RUNS,
    "`foretrain measure` and `foretrain campaign` store runs; `foretrain validate` compares them with "
    "predictions. The environment variable FORETRAIN_STORE names the store: an SQLite file or a "
    "postgresql:// URL.\n\n\b\nExamples:\n  foretrain runs list --json\n  foretrain runs show 3f2a\n"
    "  foretrain runs import timings.csv",
)
_VALIDATE = Command(
    ValidateRequest,
    ValidateOutput,
    validate,
    details="Compares the prediction made before each completed run, and the prediction of today, with the "
    "measured step time: error, bias and interval coverage by model and device, and the worst cases. Runs of "
    f"the same setting are predicted once. For public data: {PUBLIC_SUITES}.",
    examples=("foretrain validate", "foretrain validate --model resnet18 --all", "foretrain validate --json"),
)
COMMANDS = {"runs": _RUNS, "validate": _VALIDATE}
