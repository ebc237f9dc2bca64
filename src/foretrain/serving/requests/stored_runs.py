"""The requests on stored runs: list, show, compare, export, import, delete, validate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from foretrain.decoding import FILE, TEXT, OptionKind, Unreadable, choice, option, texts, whole_number
from foretrain.errors import InvalidRequest
from foretrain.panels import OUTPUT, STORED
from foretrain.serving.requests import Request, StoreOption

STATUSES = ("completed", "failed", "out-of-memory", "timed-out", "interrupted")
"""Those of `store.runs.Status`, which is not imported here: it needs numpy."""


FORMATS = ("csv", "parquet", "json")


def _read_since(value: Any) -> datetime:
    from foretrain.store.runs import parse_since

    if isinstance(value, datetime):
        return value
    if not isinstance(value, str):
        raise Unreadable
    try:
        return parse_since(value)
    except InvalidRequest as error:
        raise Unreadable from error


SINCE = OptionKind("TIME", "a date such as 2026-11-16, or a duration before now such as 7d", _read_since)


@dataclass(frozen=True, kw_only=True)
class QueryFields(StoreOption):
    """Which runs."""

    model: str | None = option(TEXT, "Only runs of this model.", complete="model", panel=STORED)
    device: str | None = option(TEXT, "Only runs on this device.", complete="device", panel=STORED)
    campaign: str | None = option(TEXT, "Only runs of this campaign.", metavar="NAME", panel=STORED)
    status: str | None = option(
        choice(*STATUSES), f"Only runs with this status: {', '.join(STATUSES)}.", panel=STORED
    )
    since: datetime | None = option(
        SINCE,
        "Only runs since this time: a date such as 2026-11-16, or 7d for the last 7 days.",
        panel=STORED,
    )


@dataclass(frozen=True, kw_only=True)
class ListRunsRequest(Request, QueryFields):
    """Runs in a table."""

    EXAMPLES = (
        "foretrain runs list",
        "foretrain runs list --model resnet18 --since 7d --json",
    )

    limit: int = option(whole_number(1), "Maximum number of runs, newest first.", default=30, panel=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class ShowRunRequest(Request, StoreOption):
    """One run."""

    EXAMPLES = ("foretrain runs show 3f2a",)

    id: str = option(TEXT, "Run id, or a unique prefix of it.", required=True, positional=True, metavar="ID")


@dataclass(frozen=True, kw_only=True)
class CompareRunsRequest(Request, StoreOption):
    """Several runs."""

    EXAMPLES = ("foretrain runs compare 3f2a 9c01",)

    ids: tuple[str, ...] = option(
        texts("ids of runs"),
        "Run ids; ratios are relative to the first.",
        required=True,
        positional=True,
        metavar="ID",
    )


@dataclass(frozen=True, kw_only=True)
class ExportRunsRequest(Request, QueryFields):
    """Runs into a file."""

    DETAILS = "Parquet and JSON hold whole runs with steps and resource series; CSV holds one row per run."
    EXAMPLES = (
        "foretrain runs export runs.parquet",
        "foretrain runs export --campaign batch_sizes runs.csv",
    )

    file: Path = option(FILE, "File to write.", required=True, positional=True, metavar="FILE")
    format: str | None = option(
        choice(*FORMATS), "csv, parquet or json (default: from the file name).", panel=OUTPUT
    )


@dataclass(frozen=True, kw_only=True)
class ImportRunsRequest(Request, StoreOption):
    """Runs out of a file."""

    DETAILS = "A file is imported whole or not at all; runs that are stored already are not added again."
    EXAMPLES = (
        "foretrain runs import runs.parquet",
        "foretrain runs import timings.csv",
    )

    file: Path = option(
        FILE,
        "Exported runs, or a CSV of model,device,batch,step_seconds and further options of predict.",
        required=True,
        positional=True,
        metavar="FILE",
    )
    format: str | None = option(choice(*FORMATS), "csv, parquet or json (default: from the file name).")


@dataclass(frozen=True, kw_only=True)
class DeleteRunsRequest(Request, StoreOption):
    """Runs to delete."""

    EXAMPLES = (
        "foretrain runs delete 3f2a 9c01",
        "foretrain runs delete --campaign batch_sizes --yes",
    )

    ids: tuple[str, ...] = option(
        texts("ids of runs"), "Run ids, or unique prefixes.", default=(), positional=True, metavar="ID"
    )
    campaign: str | None = option(TEXT, "All runs of this campaign.", metavar="NAME", panel=STORED)


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request, QueryFields):
    """Which runs are compared with predictions."""

    DETAILS = (
        "Compares the prediction made before each completed run, and the prediction of today, with the "
        "measured step time: error, bias and interval coverage by model and device, and the worst cases. "
        "Runs of the same setting are predicted once. For public data: the accuracy suites on public "
        "measurements run with `make validate` in a source checkout."
    )
    EXAMPLES = (
        "foretrain validate",
        "foretrain validate --model resnet18 --all",
        "foretrain validate --json",
    )
