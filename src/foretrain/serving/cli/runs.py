"""`foretrain runs`: what is in the store of runs, and files of runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import FILE, SWITCH, TEXT, Kind, Unreadable, choice, option, texts, whole_number
from foretrain.errors import InvalidRequest
from foretrain.panels import OUTPUT, STORED
from foretrain.serving.cli.frame import Command, CommandFamily, Output
from foretrain.serving.requests import Request
from foretrain.store.queries import RunQuery, parse_since
from foretrain.store.runs import Run, Status

if TYPE_CHECKING:
    from foretrain.store.database import Store

STATUSES = {status.value.replace(" ", "-"): status for status in Status}
FORMATS = ("csv", "parquet", "json")


def _read_since(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Unreadable
    try:
        return parse_since(value)
    except InvalidRequest as error:
        raise Unreadable from error


SINCE = Kind("TIME", "a date such as 2026-11-16, or a duration before now such as 7d", _read_since)


@dataclass(frozen=True, kw_only=True)
class StoreField:
    """Which store."""

    store: str | None = option(
        TEXT,
        "SQLite file or postgresql:// URL of the store (default: FORETRAIN_STORE, else your data folder).",
        metavar="FILE|URL",
        panel=STORED,
    )


@dataclass(frozen=True, kw_only=True)
class QueryFields(StoreField):
    """Which runs."""

    model: str | None = option(TEXT, "Only runs of this model.", complete="model", panel=STORED)
    device: str | None = option(TEXT, "Only runs on this device.", complete="device", panel=STORED)
    campaign: str | None = option(TEXT, "Only runs of this campaign.", metavar="NAME", panel=STORED)
    status: str | None = option(
        choice(*STATUSES), f"Only runs that ended so: {', '.join(STATUSES)}.", panel=STORED
    )
    since: datetime | None = option(
        SINCE, "Only runs since then: 2026-11-16, or 7d for the last 7 days.", panel=STORED
    )


def query_of(request: QueryFields, limit: int | None = None) -> RunQuery:
    """The conditions of a request."""
    return RunQuery(
        model=request.model,
        device=request.device,
        campaign=request.campaign,
        status=None if request.status is None else STATUSES[request.status],
        since=request.since,
        limit=limit,
    )


@dataclass(frozen=True, kw_only=True)
class ListRequest(Request, QueryFields):
    """Runs in a table."""

    VERB = "runs list"

    limit: int = option(whole_number(1), "Most runs to list, the newest first.", default=30, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class ShowRequest(Request, StoreField):
    """One run."""

    VERB = "runs show"

    id: str = option(TEXT, "Id of the run, or the start of it.", required=True, positional=True, metavar="ID")


@dataclass(frozen=True, kw_only=True)
class CompareRequest(Request, StoreField):
    """Several runs."""

    VERB = "runs compare"

    ids: tuple[str, ...] = option(
        texts("ids of runs"),
        "Ids of runs; ratios are to the first.",
        required=True,
        positional=True,
        metavar="ID",
    )


@dataclass(frozen=True, kw_only=True)
class ExportRequest(Request, QueryFields):
    """Runs into a file."""

    VERB = "runs export"

    file: Path = option(FILE, "File to write.", required=True, positional=True, metavar="FILE")
    format: str | None = option(
        choice(*FORMATS), "csv, parquet or json (default: by the name of the file).", panel=OUTPUT
    )


@dataclass(frozen=True, kw_only=True)
class ImportRequest(Request, StoreField):
    """Runs out of a file."""

    VERB = "runs import"

    file: Path = option(
        FILE,
        "Exported runs, or a CSV of model,device,batch,step_seconds and further options of predict.",
        required=True,
        positional=True,
        metavar="FILE",
    )
    format: str | None = option(choice(*FORMATS), "csv, parquet or json (default: by the name of the file).")


@dataclass(frozen=True, kw_only=True)
class DeleteRequest(Request, StoreField):
    """Runs to delete."""

    VERB = "runs delete"

    ids: tuple[str, ...] = option(
        texts("ids of runs"), "Ids of runs, or the start of them.", default=(), positional=True, metavar="ID"
    )
    campaign: str | None = option(TEXT, "All runs of this campaign.", metavar="NAME", panel=STORED)


@dataclass(frozen=True, kw_only=True)
class DeleteOutput(Output):
    """Whether to ask."""

    yes: bool = option(SWITCH, "Delete without asking.", default=False, panel=OUTPUT)


def list_runs(request: ListRequest, output: Output) -> None:
    """Print the newest runs."""
    from foretrain.serving.cli.runs_text import show_list
    from foretrain.serving.cli.terminal import print_json
    from foretrain.store import open_store

    with open_store(request.store) as store:
        runs = store.runs(query_of(request, request.limit + 1))
        place = store.place
    has_more, runs = len(runs) > request.limit, runs[: request.limit]
    if output.json:
        print_json({"store": place, "runs": [summarised(run) for run in runs], "has_more": has_more})
    else:
        show_list(runs, place, has_more)


def summarised(run: Run) -> dict[str, Any]:
    """A run as plain data without its arrays, and without the whole answer of its prediction."""
    from foretrain.encoding import encode

    row: dict[str, Any] = encode(
        {each.name: getattr(run, each.name) for each in fields(run) if each.name not in ("steps", "series")}
    )
    if row["prediction"] is not None:
        del row["prediction"]["answer"]
    return row


def show_run(request: ShowRequest, output: Output) -> None:
    """Print one run."""
    from foretrain.learning.validation import compare_run, why_not_comparable
    from foretrain.serving.cli.runs_text import show_one
    from foretrain.serving.cli.terminal import print_json
    from foretrain.store import open_store
    from foretrain.store.figures import resource_use

    with open_store(request.store) as store:
        run = store.run(request.id)
    comparison = (
        compare_run(run, run.prediction)
        if run.prediction is not None and not why_not_comparable(run)
        else None
    )
    uses = resource_use(run)
    if output.json:
        workers = [
            {"worker": each.worker, "node": each.node, "steps": len(each.seconds)} for each in run.steps
        ]
        more = {"workers": workers, "resources": uses, "comparison": comparison}
        print_json({**summarised(run), "prediction": run.prediction, **more})
    else:
        show_one(run, uses, comparison)


def compare_runs(request: CompareRequest, output: Output) -> None:
    """Print several runs side by side."""
    from foretrain.errors import InvalidRequest
    from foretrain.serving.cli.runs_text import show_side_by_side
    from foretrain.serving.cli.terminal import print_json
    from foretrain.store import open_store
    from foretrain.store.figures import side_by_side

    with open_store(request.store) as store:
        ids = tuple(dict.fromkeys(store.id_of(each) for each in request.ids))
        if len(ids) < 2:
            raise InvalidRequest("compare takes at least two different runs")
        by_id = {run.id: run for run in store.runs(RunQuery(ids=ids), with_series=True)}
    runs = [by_id[each] for each in ids]
    figures = side_by_side(runs)
    if output.json:
        print_json({"runs": [summarised(run) for run in runs], "figures": figures})
    else:
        show_side_by_side(runs, figures)


def export(request: ExportRequest, output: Output) -> None:
    """Write runs to a file."""
    from foretrain.errors import MissingData
    from foretrain.serving.cli.frame import check_file
    from foretrain.serving.cli.terminal import print_json, print_line, spinner
    from foretrain.store import open_store
    from foretrain.store.exchange import export_runs, form_of

    check_file("FILE", request.file)
    form_of(request.file, request.format)
    with open_store(request.store) as store, spinner(f"Writing {request.file}"):
        if not store.runs(query_of(request, 1)):
            raise MissingData(
                f"no run in the store {store.place} meets the conditions; list them: foretrain runs list"
            )
        count = export_runs(store, query_of(request), request.file, request.format)
    if output.json:
        print_json({"file": str(request.file), "runs": count})
    else:
        print_line(f"{_runs(count)} written to {request.file}.")


def import_file(request: ImportRequest, output: Output) -> None:
    """Add the runs of a file to the store."""
    from foretrain.serving.cli.terminal import print_json, print_line, spinner
    from foretrain.serving.verbs.run_predictions import described
    from foretrain.store import open_store
    from foretrain.store.exchange import import_runs

    with open_store(request.store) as store, spinner(f"Reading {request.file}"):
        total, added = import_runs(store, request.file, described, request.format)
        place = store.place
    if output.json:
        print_json({"file": str(request.file), "store": place, "runs": total, "added": added})
    else:
        known = f", {total - added} were stored already" if total > added else ""
        print_line(f"{_runs(added)} added{known}.")
        print_line(f"Store: {place}")


def delete(request: DeleteRequest, output: DeleteOutput) -> None:
    """Delete runs, after a question on a terminal."""
    import click

    from foretrain.errors import InvalidRequest
    from foretrain.serving.cli.terminal import print_json, print_line
    from foretrain.store import open_store

    with open_store(request.store) as store:
        ids = _to_delete(store, request)
        if not output.yes:
            if not sys.stdin.isatty():
                raise InvalidRequest(
                    f"delete asks before it deletes {_runs(len(ids))}; without a terminal add --yes"
                )
            if not click.confirm(f"Delete {_runs(len(ids))} ({_some(ids)}) from {store.place}?", err=True):
                print_line("Nothing was deleted.")
                return
        count = store.delete(ids)
    if output.json:
        print_json({"deleted": count})
    else:
        print_line(f"{_runs(count)} deleted.")


def _to_delete(store: Store, request: DeleteRequest) -> list[str]:
    from foretrain.errors import InvalidRequest, UnknownName

    if bool(request.ids) == (request.campaign is not None):
        raise InvalidRequest("delete takes either ids of runs or --campaign")
    if request.campaign is None:
        return list(dict.fromkeys(store.id_of(each) for each in request.ids))
    ids = [run.id for run in store.runs(RunQuery(campaign=request.campaign))]
    if not ids:
        known = {run.campaign for run in store.runs() if run.campaign is not None}
        raise UnknownName("campaign", request.campaign, known, "List them: foretrain runs list")
    return ids


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _some(ids: list[str], most: int = 4) -> str:
    return ", ".join(ids) if len(ids) <= most else f"{', '.join(ids[:most])} and {len(ids) - most} more"


_COMMANDS: Mapping[str, tuple[str, Command]] = {
    "list": (
        "List runs, the newest first.",
        Command(
            ListRequest, Output, list_runs,
            examples=("foretrain runs list", "foretrain runs list --model resnet18 --since 7d --json"),
        ),
    ),
    "show": (
        "Show a run: steps, resources, prediction and measurement.",
        Command(ShowRequest, Output, show_run, examples=("foretrain runs show 3f2a",)),
    ),
    "compare": (
        "Compare runs side by side, with ratios to the first.",
        Command(CompareRequest, Output, compare_runs, examples=("foretrain runs compare 3f2a 9c01",)),
    ),
    "export": (
        "Write runs to a CSV, Parquet or JSON file.",
        Command(
            ExportRequest, Output, export,
            "Parquet and JSON hold whole runs with steps and resource series; CSV holds one row per run.",
            ("foretrain runs export runs.parquet", "foretrain runs export --campaign seeds runs.csv"),
        ),
    ),
    "import": (
        "Add the runs of a file to the store.",
        Command(
            ImportRequest, Output, import_file,
            "A file is imported whole or not at all; runs that are stored already are not added again.",
            ("foretrain runs import runs.parquet", "foretrain runs import timings.csv"),
        ),
    ),
    "delete": (
        "Delete runs from the store.",
        Command(
            DeleteRequest, DeleteOutput, delete,
            examples=("foretrain runs delete 3f2a 9c01", "foretrain runs delete --campaign seeds --yes"),
        ),
    ),
}  # fmt: skip

COMMAND = CommandFamily(
    _COMMANDS,
    "`foretrain measure` and `foretrain campaign` store runs; `foretrain validate` compares them with "
    "predictions. The environment variable FORETRAIN_STORE names the store: an SQLite file or a "
    "postgresql:// URL.\n\n\b\nExamples:\n  foretrain runs list --json\n  foretrain runs show 3f2a\n"
    "  foretrain runs import timings.csv",
)
