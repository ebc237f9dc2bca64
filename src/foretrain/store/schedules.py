"""Schedules that run for real, as rows: what became of jobs, attempts, the bill, the forecast.

Rows are plain; what they mean is up to `foretrain.backends`. Every method is one transaction, so that a
process that dies leaves either all of a change or nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, update

from foretrain.store.opening import Database, open_database
from foretrain.store.tables import attempts, node_intervals, schedule_jobs, schedules, slots

Row = Mapping[str, Any]


@dataclass(frozen=True)
class StoredSchedule:
    """All rows of one schedule."""

    head: Row
    jobs: tuple[Row, ...]
    attempts: tuple[Row, ...]
    intervals: tuple[Row, ...]
    slots: tuple[Row, ...]


class ScheduleStore:
    """The schedules in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def place(self) -> str:
        """The file or URL of the store, for messages."""
        return self._database.place

    def schedule(self, name: str) -> StoredSchedule | None:
        """A schedule by its name."""
        with self._database.reading() as connection:
            heads = _rows(connection, select(schedules).where(schedules.c.name == name))
            if not heads:
                return None
            key = heads[0]["id"]
            parts = (
                _rows(connection, select(table).where(table.c.schedule == key).order_by(*order))
                for table, order in (
                    (schedule_jobs, [schedule_jobs.c.job]),
                    (attempts, [attempts.c.started_seconds, attempts.c.number]),
                    (node_intervals, [node_intervals.c.position]),
                    (slots, [slots.c.position]),
                )
            )
            return StoredSchedule(heads[0], *parts)

    def names(self) -> tuple[str, ...]:
        """All schedules, newest first."""
        with self._database.reading() as connection:
            ordered = select(schedules.c.name).order_by(schedules.c.created_at.desc())
            return tuple(connection.scalars(ordered))

    def add(self, head: Row) -> None:
        """A new schedule."""
        with self._database.writing() as connection:
            connection.execute(insert(schedules), [dict(head)])

    def delete(self, name: str) -> None:
        """Forget a schedule and all that belongs to it."""
        with self._database.writing() as connection:
            connection.execute(delete(schedules).where(schedules.c.name == name))

    def changing(self, schedule: str) -> Change:
        """Changes of one schedule that are stored together when the `with` statement ends."""
        return Change(self._database.writing(), schedule)


class Change:
    """One transaction on a schedule."""

    def __init__(self, writing: AbstractContextManager[Connection], schedule: str) -> None:
        self._writing = writing
        self._schedule = schedule
        self._connection: Connection | None = None

    def __enter__(self) -> Change:
        self._connection = self._writing.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._writing.__exit__(*reason)

    def head(self, **values: Any) -> None:
        """Change columns of the schedule itself."""
        self._run(update(schedules).where(schedules.c.id == self._schedule).values(**values))

    def job(self, row: Row) -> None:
        """Add or replace what is known of a job."""
        self._replace(schedule_jobs, {"job": row["job"]}, row)

    def attempt(self, row: Row) -> None:
        """Add or replace an attempt."""
        self._replace(attempts, {"key": row["key"]}, row)

    def interval(self, row: Row) -> None:
        """Add or replace an interval of a node."""
        self._replace(node_intervals, {"position": row["position"]}, row)

    def slot(self, row: Row) -> None:
        """Add a slot."""
        self._replace(slots, {"position": row["position"]}, row)

    def _replace(self, table: Table, key: Row, row: Row) -> None:
        matching = [table.c.schedule == self._schedule, *(table.c[name] == key[name] for name in key)]
        values = {**row, "schedule": self._schedule}
        if self._run(update(table).where(*matching).values(**values)).rowcount == 0:
            self._run(insert(table).values(**values))

    def _run(self, statement: Any) -> Any:
        assert self._connection is not None, "changes are made in a `with` statement"
        return self._connection.execute(statement)


def open_schedules(url: str | None = None) -> ScheduleStore:
    """The schedules of the store at a path or URL; `foretrain.store.open_store` describes both."""
    return ScheduleStore(open_database(url))


def _rows(connection: Connection, wanted: Any) -> tuple[dict[str, Any], ...]:
    return tuple(dict(row) for row in connection.execute(wanted).mappings())
