"""The store: runs are added, asked for and deleted."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.store.opening import Database, damaged_store
from foretrain.store.rows import (
    Row,
    check,
    environment_row,
    prediction_row,
    run_of,
    run_row,
    series_rows,
    steps_rows,
)
from foretrain.store.runs import Run, RunQuery, Status
from foretrain.store.tables import environments, predictions, runs, series, worker_steps

_CHUNK = 500
"""Ids of one SQL statement: databases limit its parameters."""


class Store:
    """Runs in a database. Use it in a `with` statement; every method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.engine.dispose()

    @property
    def place(self) -> str:
        """The file or URL of the store, for messages: without a password."""
        return self._database.place

    def add(self, run: Run) -> None:
        """Store a run; an id or a trial that is stored already is refused."""
        check(run)
        try:
            with self._database.writing() as connection:
                _refuse_known(connection, run)
                _insert(connection, [run])
        except IntegrityError as error:  # another process stored it in the meantime
            with self._database.reading() as connection:
                _refuse_known(connection, run)
            raise InvalidRequest(f"run {run.id} cannot be stored: {error.orig}") from error

    def add_new(self, given: Sequence[Run]) -> int:
        """Store those runs whose ids are not stored yet, all or none of them; returns their number."""
        for run in given:
            check(run)
        try:
            return self._add_new(given)
        except IntegrityError:  # another process stored one of them in the meantime: it is known now
            try:
                return self._add_new(given)
            except IntegrityError as error:
                raise InvalidRequest(f"two runs have the same trial of a campaign: {error.orig}") from error

    def _add_new(self, given: Sequence[Run]) -> int:
        unique = {run.id: run for run in given}
        with self._database.writing() as connection:
            stored = _known_ids(connection, list(unique))
            new = [run for run in unique.values() if run.id not in stored]
            for run in new:
                _refuse_known_trial(connection, run)
            _insert(connection, new)
        return len(new)

    def run(self, id_or_prefix: str) -> Run:
        """The run with its steps and series, by its id or the unique start of it."""
        (run,) = self.runs(RunQuery(ids=(self.id_of(id_or_prefix),)), with_series=True)
        return run

    def id_of(self, id_or_prefix: str) -> str:
        """The whole id of a run, by the unique start of it."""
        with self._database.reading() as connection:
            near = runs.c.id.startswith(id_or_prefix, autoescape=True)
            ids: list[str] = list(
                connection.scalars(select(runs.c.id).where(near).order_by(runs.c.id).limit(10))
            )
            if id_or_prefix in ids:
                return id_or_prefix
            if len(ids) == 1 and id_or_prefix:
                return ids[0]
            if ids and id_or_prefix:
                raise InvalidRequest(
                    f"{id_or_prefix!r} is the start of several ids: {', '.join(ids)}; write more of it"
                )
            newest = select(runs.c.id).order_by(runs.c.started_at.desc()).limit(10_000)
            known: list[str] = list(connection.scalars(newest))
        shortened = {each[: max(len(id_or_prefix), 4)] for each in known}
        raise UnknownName("run", id_or_prefix, {*known, *shortened}, "List them: foretrain runs list")

    def runs(self, query: RunQuery | None = None, *, with_series: bool = False) -> list[Run]:
        """The runs that meet a query, newest first; with their steps and series only if wanted."""
        query = query or RunQuery()
        try:
            with self._database.reading() as connection:
                rows = _rows(connection, _select_rows(query))
                ids = [row["id"] for row in rows]
                steps, sampled = (
                    _by_run(connection, table, ids) if with_series else {} for table in (worker_steps, series)
                )
                return [
                    run_of(
                        row,
                        _part(row, environments),
                        _part(row, predictions) if row["predictions_run"] is not None else None,
                        steps.get(row["id"], ()),
                        sampled.get(row["id"], ()),
                    )
                    for row in rows
                ]
        except (ValueError, zlib.error) as error:  # an array, JSON, or a name that this version does not have
            raise damaged_store(self.place, f"the data of a run cannot be decoded ({error})") from error

    def trials(self, campaign: str) -> dict[str, Status]:
        """The trials of a campaign that are stored, and how they ended."""
        with self._database.reading() as connection:
            is_trial = (runs.c.campaign == campaign) & runs.c.trial.is_not(None)
            rows = connection.execute(select(runs.c.trial, runs.c.status).where(is_trial))
            return {trial: Status(status) for trial, status in rows}

    def delete(self, ids: Iterable[str]) -> int:
        """Delete runs by their whole ids; returns how many there were."""
        with self._database.writing() as connection:
            return sum(
                connection.execute(delete(runs).where(runs.c.id.in_(chunk))).rowcount
                for chunk in _chunks(list(dict.fromkeys(ids)))
            )


def _select_rows(query: RunQuery) -> Select[Any]:
    columns = [
        *runs.c,
        *(
            column.label(f"{table.name}_{column.name}")
            for table in (environments, predictions)
            for column in table.c
        ),
    ]
    selected = (
        select(*columns)
        .join(environments, runs.c.environment == environments.c.id)
        .outerjoin(predictions, predictions.c.run == runs.c.id)
        .order_by(runs.c.started_at.desc(), runs.c.id)
    )
    conditions = {
        runs.c.model: query.model,
        environments.c.device: query.device,
        runs.c.campaign: query.campaign,
        runs.c.status: None if query.status is None else query.status.value,
    }
    for column, wanted in conditions.items():
        if wanted is not None:
            selected = selected.where(column == wanted)
    if query.since is not None:
        selected = selected.where(runs.c.started_at >= query.since)
    if query.ids:
        selected = selected.where(runs.c.id.in_(query.ids))
    return selected if query.limit is None else selected.limit(query.limit)


def _part(row: Row, table: Table) -> dict[str, Any]:
    """The columns of one table in a joined row."""
    return {column.name: row[f"{table.name}_{column.name}"] for column in table.c}


def _by_run(connection: Connection, table: Table, ids: Sequence[str]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for chunk in _chunks(ids):
        wanted = select(table).where(table.c.run.in_(chunk)).order_by(table.c.run, table.c.position)
        for row in _rows(connection, wanted):
            rows[row["run"]].append(row)
    return rows


def _rows(connection: Connection, wanted: Select[Any]) -> list[Row]:
    return [dict(row) for row in connection.execute(wanted).mappings()]


def _chunks(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _CHUNK):
        yield ids[start : start + _CHUNK]


def _known_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    return {
        known
        for chunk in _chunks(ids)
        for known in connection.scalars(select(runs.c.id).where(runs.c.id.in_(chunk)))
    }


def _refuse_known(connection: Connection, run: Run) -> None:
    if _known_ids(connection, [run.id]):
        raise InvalidRequest(f"run {run.id} is stored already")
    _refuse_known_trial(connection, run)


def _refuse_known_trial(connection: Connection, run: Run) -> None:
    if run.trial is not None:
        same = select(runs.c.id).where(runs.c.campaign == run.campaign, runs.c.trial == run.trial)
        stored = connection.scalar(same)
        if stored is not None:
            raise InvalidRequest(
                f"trial {run.trial!r} of campaign {run.campaign!r} is stored already, as run {stored}"
            )


def _insert(connection: Connection, given: Sequence[Run]) -> None:
    """All rows of some runs. Environments come in one order, so that two writers cannot block each other."""
    kinds = {row["id"]: row for row in (environment_row(run.environment) for run in given)}
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    for key in sorted(kinds):
        connection.execute(dialect.insert(environments).values(kinds[key]).on_conflict_do_nothing())
    made = [prediction_row(run.id, run.prediction) for run in given if run.prediction is not None]
    for table, rows in (
        (runs, [run_row(run) for run in given]),
        (predictions, made),
        (worker_steps, [row for run in given for row in steps_rows(run)]),
        (series, [row for run in given for row in series_rows(run)]),
    ):
        if rows:
            connection.execute(insert(table), rows)
