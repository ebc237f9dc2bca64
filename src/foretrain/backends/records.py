"""Between what a running schedule knows and the rows of the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from foretrain.backends.clock import Origin, begin
from foretrain.backends.executors._base import Attempt, Handle
from foretrain.backends.job_files import attempt_folder
from foretrain.encoding import encode
from foretrain.scheduling.accounting import JobOutcome, JobStatus, Ledger
from foretrain.scheduling.problem import Problem, SubmittedJob
from foretrain.store.schedules import Row

WAITING, RUNNING, COMPLETED, FAILED, REJECTED = "waiting", "running", "completed", "failed", "rejected"
_STATUS = {COMPLETED: JobStatus.COMPLETED, FAILED: JobStatus.FAILED, REJECTED: JobStatus.REJECTED}
STARTING, STARTED, ENDED = "starting", "started", "ended"


@dataclass(frozen=True, slots=True)
class JobRecord:
    """What is stored of a job: its status, the work left, and how it went so far."""

    job: str
    status: str = WAITING
    work_left: float = 1.0
    pace: float = 1.0
    starts: int = 0
    failures: int = 0
    run_seconds: float = 0.0
    start_seconds: float | None = None
    finish_seconds: float | None = None
    message: str = ""

    def row(self) -> dict[str, Any]:
        """As it is stored."""
        row: dict[str, Any] = encode(self)
        return row


@dataclass(frozen=True)
class LiveAttempt:
    """An attempt that may run: its handle once it is known, its start, and the work left then.

    `progress_from` is when it is expected to progress.
    """

    attempt: Attempt
    started_seconds: float
    progress_from: float
    done_before: float
    handle: Handle | None = None

    def row(self, state: str, **values: Any) -> dict[str, Any]:
        """As it is stored."""
        attempt = self.attempt
        return {
            "key": attempt.key,
            "job": attempt.job,
            "number": attempt.number,
            "state": state,
            "node_type": attempt.node_type,
            "gpus": attempt.gpus,
            "nodes": attempt.nodes,
            "hosts": attempt.hosts,
            "devices": attempt.devices,
            "handle": self.handle,
            "started_seconds": self.started_seconds,
            "message": "",
            **values,
        }

    def ended_row(self, seconds: float, code: int | None, message: str) -> dict[str, Any]:
        """As it is stored once it has ended."""
        return self.row(ENDED, ended_seconds=seconds, exit_code=code, message=message)

    def with_handle(self, handle: Handle) -> LiveAttempt:
        """The same, started."""
        return replace(self, handle=handle)


def job_record(row: Row) -> JobRecord:
    """From its row."""
    return JobRecord(**{name: row[name] for name in JobRecord.__dataclass_fields__})


def job_outcome(record: JobRecord, job: SubmittedJob, ledger: Ledger) -> JobOutcome:
    """What became of a job, with its part of the bill."""
    finish = record.finish_seconds
    late = 0.0 if finish is None else max(0.0, finish - job.deadline_seconds)
    return JobOutcome(
        job=record.job,
        status=_STATUS.get(record.status, JobStatus.UNFINISHED),
        submit_seconds=job.submit_seconds,
        deadline_seconds=job.deadline_seconds,
        start_seconds=record.start_seconds,
        finish_seconds=finish,
        late_seconds=late,
        execution_usd=ledger.usd_by_job.get(record.job, 0.0),
        tardiness_usd=job.weight_usd_per_second * late,
        gpu_seconds=ledger.gpu_seconds_by_job.get(record.job, 0.0),
        starts=record.starts,
        message="" if record.status == COMPLETED else record.message,
    )


def attempt_of(row: Row, folder: Path) -> Attempt:
    """From its row."""
    return Attempt(
        key=row["key"],
        job=row["job"],
        number=row["number"],
        folder=attempt_folder(folder, row["job"], row["number"]),
        node_type=row["node_type"],
        gpus=row["gpus"],
        nodes=tuple(row["nodes"]),
        hosts=tuple(row["hosts"]),
        devices=tuple(tuple(each) for each in row["devices"]),
    )


def digest(problem: Problem) -> str:
    """Equal for equal problems: names and submissions of jobs, and the fleet."""
    content = {
        "jobs": [[job.name, job.submit_seconds, job.deadline_seconds] for job in problem.jobs],
        "groups": [[group.count, group.types] for group in problem.fleet.groups],
        "gpus": {name: each.gpus for name, each in problem.fleet.types.items()},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def new_head(name: str, backend: str, policy: str, folder: Path, problem: Problem) -> dict[str, Any]:
    """The row of a schedule that begins now."""
    origin = begin()
    return {
        "id": hashlib.sha256(f"{name}\0{origin}".encode()).hexdigest()[:16],
        "name": name,
        "backend": backend,
        "policy": policy,
        "folder": str(folder),
        "created_at": datetime.fromtimestamp(origin.wall, UTC),
        "boot": origin.boot,
        "origin_seconds": origin.monotonic,
        "last_seconds": 0.0,
        "problem": digest(problem),
        "hosts": {},
    }


def origin_of(head: Mapping[str, Any]) -> Origin:
    """The start of a stored schedule."""
    return Origin(head["boot"], head["origin_seconds"], head["created_at"].timestamp())
