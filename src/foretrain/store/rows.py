"""Runs as rows of the tables, and back."""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.store.arrays import decode_array, encode_times, encode_values
from foretrain.store.runs import (
    Environment,
    PredictionMade,
    Resource,
    ResourceSeries,
    Run,
    Status,
    StepSummary,
    WorkerSteps,
)
from foretrain.store.tables import plain_text

Row = Mapping[str, Any]
_LATEST_SECONDS = 1e9
"""30 years: a later time is not one since the start of a run."""


def check(run: Run) -> None:
    """Refuse a run that a store could not give back as it was."""
    if not run.id or len(run.id) > 64 or _clean(run.id) != run.id:
        raise InvalidRequest(f"{run.id!r} is no id of a run: it must have 1 to 64 characters")
    if run.trial is not None and run.campaign is None:
        raise InvalidRequest(f"run {run.id} has the trial {run.trial!r} but no campaign")
    times = {"started_at": run.started_at} | (
        {"made_at": run.prediction.made_at} if run.prediction is not None else {}
    )
    for name, time in times.items():
        if time.utcoffset() is None:
            raise InvalidRequest(f"{name} of run {run.id} has no time zone; use datetime.now(UTC)")
    for name, sampled in [
        *(("step ends", steps.ends) for steps in run.steps),
        *((f"times of the series {series.resource}", series.seconds) for series in run.series),
    ]:
        if not np.all(np.abs(sampled) < _LATEST_SECONDS):
            raise InvalidRequest(f"the {name} of run {run.id} are not all seconds since its start")
    for series in run.series:
        if len(series.seconds) != len(series.values):
            raise InvalidRequest(
                f"the series {series.resource} of run {run.id} has {len(series.seconds)} times but "
                f"{len(series.values)} values"
            )


def environment_id(environment: Environment) -> str:
    """The key of an environment: equal environments have equal keys."""
    return hashlib.sha256(plain_text(environment).encode()).hexdigest()[:32]


def environment_row(environment: Environment) -> dict[str, Any]:
    """A row of `environments`."""
    row = {each.name: getattr(environment, each.name) for each in fields(environment)}
    cleaned = {name: _clean(value) if isinstance(value, str) else value for name, value in row.items()}
    return {**cleaned, "id": environment_id(environment)}


def run_row(run: Run) -> dict[str, Any]:
    """A row of `runs`."""
    model = run.setting.get("model")
    return {
        "id": run.id,
        "started_at": run.started_at,
        "seconds": run.seconds,
        "status": run.status.value,
        "exit_code": run.exit_code,
        "command": list(run.command),
        "setting": dict(run.setting),
        "environment": environment_id(run.environment),
        "provenance": _clean(run.provenance),
        "message": _clean(run.message),
        "campaign": run.campaign if run.campaign is None else _clean(run.campaign),
        "trial": run.trial if run.trial is None else _clean(run.trial),
        "model": _clean(model) if isinstance(model, str) else "",
        **_summary_columns(run.summary),
    }


def _summary_columns(summary: StepSummary | None) -> dict[str, Any]:
    return {
        "step_seconds": summary and summary.seconds,
        "step_p10_seconds": summary and summary.p10_seconds,
        "step_p90_seconds": summary and summary.p90_seconds,
        "steps": summary and summary.steps,
        "warm_up_steps": summary and summary.warm_up_steps,
        "variation": summary and summary.variation,
        "input_share": summary and summary.input_share,
        "step_source": summary and _clean(summary.source),
    }


def prediction_row(run_id: str, made: PredictionMade) -> dict[str, Any]:
    """A row of `predictions`."""
    return {
        "run": run_id,
        "made_at": made.made_at,
        "version": _clean(made.version),
        "knowledge": _clean(made.knowledge),
        "p10_seconds": made.p10_seconds,
        "p50_seconds": made.p50_seconds,
        "p90_seconds": made.p90_seconds,
        "memory_bytes": made.memory_bytes,
        "answer": zlib.compress(plain_text(made.answer).encode()),
    }


def steps_rows(run: Run) -> list[dict[str, Any]]:
    """Rows of `worker_steps`."""
    return [
        {
            "run": run.id,
            "position": position,
            "worker": each.worker,
            "node": each.node,
            "ends": encode_times(each.ends),
            "seconds": encode_values(each.seconds),
            "input_seconds": encode_values(each.input_seconds),
        }
        for position, each in enumerate(run.steps)
    ]


def series_rows(run: Run) -> list[dict[str, Any]]:
    """Rows of `series`."""
    return [
        {
            "run": run.id,
            "position": position,
            "resource": each.resource.value,
            "worker": each.worker,
            "node": each.node,
            "label": _clean(each.label),
            "seconds": encode_times(each.seconds),
            "values": encode_values(each.values),
        }
        for position, each in enumerate(run.series)
    ]


def run_of(
    row: Row, environment: Row, prediction: Row | None, steps: Iterable[Row] = (), series: Iterable[Row] = ()
) -> Run:
    """The run of its rows."""
    return Run(
        id=row["id"],
        started_at=row["started_at"],
        seconds=_number(row["seconds"]),
        status=Status(row["status"]),
        exit_code=row["exit_code"],
        command=tuple(row["command"]),
        setting=row["setting"],
        environment=Environment(**{each.name: environment[each.name] for each in fields(Environment)}),
        provenance=row["provenance"],
        summary=_summary(row),
        prediction=None if prediction is None else _prediction(prediction),
        steps=tuple(map(_worker_steps, steps)),
        series=tuple(map(_series, series)),
        message=row["message"],
        campaign=row["campaign"],
        trial=row["trial"],
    )


def _summary(row: Row) -> StepSummary | None:
    if row["steps"] is None:
        return None
    return StepSummary(
        seconds=_number(row["step_seconds"]),
        p10_seconds=_number(row["step_p10_seconds"]),
        p90_seconds=_number(row["step_p90_seconds"]),
        steps=row["steps"],
        warm_up_steps=row["warm_up_steps"],
        variation=_number(row["variation"]),
        input_share=row["input_share"],
        source=row["step_source"],
    )


def _prediction(row: Row) -> PredictionMade:
    return PredictionMade(
        made_at=row["made_at"],
        version=row["version"],
        knowledge=row["knowledge"],
        p10_seconds=_number(row["p10_seconds"]),
        p50_seconds=_number(row["p50_seconds"]),
        p90_seconds=_number(row["p90_seconds"]),
        memory_bytes=row["memory_bytes"],
        answer=json.loads(zlib.decompress(row["answer"])),
    )


def _worker_steps(row: Row) -> WorkerSteps:
    return WorkerSteps(
        worker=row["worker"],
        node=row["node"],
        ends=decode_array(row["ends"]),
        seconds=decode_array(row["seconds"]),
        input_seconds=decode_array(row["input_seconds"]),
    )


def _series(row: Row) -> ResourceSeries:
    return ResourceSeries(
        resource=Resource(row["resource"]),
        worker=row["worker"],
        node=row["node"],
        label=row["label"],
        seconds=decode_array(row["seconds"]),
        values=decode_array(row["values"]),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _clean(text: str) -> str:
    """Text that every database takes: NUL and undecodable bytes as their escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
