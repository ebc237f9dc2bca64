"""The tables of a store, as the newest migration leaves them.

`runs` holds one row per run with its step summary; `environments` each distinct environment once;
`predictions` what was predicted before a run; `worker_steps` and `series` compressed arrays. A campaign and a
trial are columns of the run: a unique constraint keeps a campaign from storing a trial twice. Rows that
belong to a run are deleted with it.

`schedules` holds schedules that run for real: `schedule_jobs` what became of each job, `attempts` every start
of a job with what finds it again after a restart, `node_intervals` the bill and `slots` the forecast beside
it. Their times are seconds since the schedule began.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

from foretrain.encoding import encode

VERSION_TABLE = "foretrain_schema"
"""Holds the revision of the schema; not alembic's default name, which another application may use."""


class UtcTime(TypeDecorator[datetime]):
    """A point in time, in UTC on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """In UTC; SQLite keeps no time zone."""
        if value is None:
            return None
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """With its time zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)


class PlainData(TypeDecorator[Any]):
    """Plain data as JSON text. Escapes keep every string intact, also NUL and undecodable bytes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        """JSON with sorted keys, so that equal data is equal text."""
        return None if value is None else plain_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        """The data."""
        return None if value is None else json.loads(value)


class QuantityColumn(TypeDecorator[float]):
    """A double; NaN is NULL on every database."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        """NULL for NaN."""
        return None if value is None or math.isnan(value) else float(value)


def plain_text(value: Any) -> str:
    """Plain data as compact JSON; what JSON does not have (a path) as its text."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"), default=str)


metadata = MetaData()

environments = Table(
    "environments",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("device", Text, nullable=False),
    Column("device_name", Text, nullable=False),
    Column("devices_per_node", Integer, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("cpu", Text, nullable=False),
    Column("cores", Integer, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("driver", Text, nullable=False),
    Column("topology", Text, nullable=False),
    Column("versions", PlainData, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("started_at", UtcTime, nullable=False),
    Column("seconds", QuantityColumn),
    Column("status", String(32), nullable=False),
    Column("exit_code", Integer),
    Column("command", PlainData, nullable=False),
    Column("setting", PlainData, nullable=False),
    Column("environment", String(32), ForeignKey("environments.id", name="runs_environment"), nullable=False),
    Column("provenance", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("campaign", Text),
    Column("trial", Text),
    Column("step_seconds", QuantityColumn),
    Column("step_p10_seconds", QuantityColumn),
    Column("step_p90_seconds", QuantityColumn),
    Column("steps", Integer),
    Column("warm_up_steps", Integer),
    Column("variation", QuantityColumn),
    Column("input_share", QuantityColumn),
    Column("step_source", Text),
    Column("model", Text, nullable=False, server_default=""),
    UniqueConstraint("campaign", "trial", name="runs_trial"),
    Index("runs_started_at", "started_at"),
    Index("runs_model", "model"),
)
"""`steps` is NULL where there is no step summary; `model` repeats that of the setting, for queries."""


def _of_run(*, is_key: bool) -> Column[str]:
    return Column(
        "run",
        String(64),
        ForeignKey("runs.id", ondelete="CASCADE"),
        primary_key=is_key,
        nullable=False,
    )


predictions = Table(
    "predictions",
    metadata,
    _of_run(is_key=True),
    Column("made_at", UtcTime, nullable=False),
    Column("version", Text, nullable=False),
    Column("knowledge", Text, nullable=False),
    Column("p10_seconds", QuantityColumn),
    Column("p50_seconds", QuantityColumn),
    Column("p90_seconds", QuantityColumn),
    Column("memory_bytes", QuantityColumn),
    Column("answer", LargeBinary, nullable=False),
)
"""`answer` is zlib-compressed JSON."""

worker_steps = Table(
    "worker_steps",
    metadata,
    _of_run(is_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("worker", Integer, nullable=False),
    Column("node", Integer, nullable=False),
    Column("ends", LargeBinary, nullable=False),
    Column("seconds", LargeBinary, nullable=False),
    Column("input_seconds", LargeBinary, nullable=False),
)

series = Table(
    "series",
    metadata,
    _of_run(is_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("resource", String(32), nullable=False),
    Column("worker", Integer, nullable=False),
    Column("node", Integer, nullable=False),
    Column("label", Text, nullable=False),
    Column("seconds", LargeBinary, nullable=False),
    Column("values", LargeBinary, nullable=False),
)
"""Arrays are encoded by `foretrain.store.arrays`; `position` is the place within the run."""


schedules = Table(
    "schedules",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("backend", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("folder", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("boot", Text, nullable=False),
    Column("origin_seconds", Double, nullable=False),
    Column("last_seconds", Double, nullable=False),
    Column("problem", Text, nullable=False),
    Column("hosts", PlainData, nullable=False),
)
"""`origin_seconds` is the start on the monotonic clock of the machine as booted then (`boot`); `last_seconds`
the latest time that was recorded; `problem` a digest of jobs and fleet; `hosts` the machine of each node.
"""


def _of_schedule(*, is_key: bool = True) -> Column[str]:
    return Column(
        "schedule",
        String(32),
        ForeignKey("schedules.id", ondelete="CASCADE"),
        primary_key=is_key,
        nullable=False,
    )


schedule_jobs = Table(
    "schedule_jobs",
    metadata,
    _of_schedule(),
    Column("job", String(255), primary_key=True),
    Column("status", String(32), nullable=False),
    Column("work_left", Double, nullable=False),
    Column("pace", Double, nullable=False),
    Column("starts", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("run_seconds", Double, nullable=False),
    Column("start_seconds", QuantityColumn),
    Column("finish_seconds", QuantityColumn),
    Column("message", Text, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("key", String(64), primary_key=True),
    _of_schedule(is_key=False),
    Column("job", String(255), nullable=False),
    Column("number", Integer, nullable=False),
    Column("state", String(32), nullable=False),
    Column("node_type", Text, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("nodes", PlainData, nullable=False),
    Column("hosts", PlainData, nullable=False),
    Column("devices", PlainData, nullable=False),
    Column("handle", PlainData),
    Column("started_seconds", Double, nullable=False),
    Column("ended_seconds", QuantityColumn),
    Column("exit_code", Integer),
    Column("message", Text, nullable=False),
    UniqueConstraint("schedule", "job", "number", name="attempts_number"),
)

node_intervals = Table(
    "node_intervals",
    metadata,
    _of_schedule(),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("node", Integer, nullable=False),
    Column("node_type", Text, nullable=False),
    Column("usd_per_hour", Double, nullable=False),
    Column("on_since", Double, nullable=False),
    Column("start_seconds", Double, nullable=False),
    Column("end_seconds", QuantityColumn),
    Column("is_last", Boolean, nullable=False),
    Column("shares", PlainData, nullable=False),
)
"""A node between two changes; `end_seconds` is NULL while it lasts, `is_last` where it was switched off
then.
"""

slots = Table(
    "slots",
    metadata,
    _of_schedule(),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("start_seconds", Double, nullable=False),
    Column("event", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("forecast_seconds", Double, nullable=False),
    Column("forecast_usd", Double, nullable=False),
    Column("decision_seconds", Double, nullable=False),
)
"""What a decision was expected to cost until the next event."""
