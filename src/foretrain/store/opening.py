"""Opening a database: its URL, its connections, its schema brought up to date, and its failures as sentences.

SQLite runs in WAL mode, so that readers never wait, and every writer takes the write lock when its
transaction begins (`BEGIN IMMEDIATE`) and waits for it. A connection lives as long as one transaction: a
store may be used by several threads and after a fork. Errors of the database become errors of foretrain that
say what happened to which store, and what to do.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from foretrain.errors import BackendFailed, ForetrainError, InvalidData, InvalidRequest, MissingData
from foretrain.facts.user_data import user_data_dir
from foretrain.store.migrations import REVISIONS
from foretrain.store.tables import VERSION_TABLE, metadata

VARIABLE = "FORETRAIN_STORE"
ELSEWHERE = f"or name another store in {VARIABLE}"
FORMS = "the path of an SQLite file, or postgresql://USER@HOST:PORT/DATABASE"
CONNECT_SECONDS = 10
"""A database server that does not answer is an error after this time, not a wait for ever."""
BUSY_SECONDS = 60.0
"""How long a writer waits for other writers."""
_ADVISORY_LOCK = 4027931
"""Of PostgreSQL: held while the schema is migrated."""
_WRITES = "foretrain_writes"


@dataclass(frozen=True)
class Database:
    """An open database; `place` names it in messages, `file` is that of SQLite."""

    engine: Engine
    place: str
    file: Path | None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads one consistent state."""
        with (
            failures_as_sentences(self.place),
            self.engine.connect() as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is stored as a whole, or not at all."""
        with (
            failures_as_sentences(self.place),
            self.engine.connect().execution_options(**{_WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection


def open_database(url: str | None = None) -> Database:
    """The database at a path or URL, with the newest schema."""
    database = _connectable(
        _parse_url(url or os.environ.get(VARIABLE) or str(user_data_dir() / "runs.sqlite"))
    )
    _update_schema(database)
    return database


def _parse_url(text: str) -> URL:
    if "://" not in text:
        return URL.create("sqlite", database=str(Path(text).expanduser().absolute()))
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise InvalidRequest(f"the store is no valid URL; it must be {FORMS}") from error
    kind = url.get_backend_name()
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database and url.database != ":memory:":
        return _parse_url(url.database)
    raise InvalidRequest(f"no store of the kind {url.drivername!r}; it must be {FORMS}")


def _connectable(url: URL) -> Database:
    if url.get_backend_name() == "sqlite":
        file = Path(url.database or "")
        _check_writable(file)
        engine = create_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return Database(engine, str(file), file)
    try:
        engine = create_engine(url, poolclass=NullPool, connect_args={"connect_timeout": CONNECT_SECONDS})
    except ImportError as error:
        raise MissingData("a store in PostgreSQL needs psycopg: pip install 'foretrain[postgres]'") from error
    shown = url.set(drivername="postgresql").render_as_string(hide_password=True)
    return Database(engine, shown, None)


def _check_writable(file: Path) -> None:
    if file.is_dir():
        raise InvalidRequest(f"the store {file} is a folder; name a file")
    with failures_as_sentences(str(file)):
        file.parent.mkdir(parents=True, exist_ok=True)
    for path in (file.parent, file):
        if path.exists() and not os.access(path, os.W_OK):
            raise unwritable(str(file), f"no permission to write {path}")


def _set_up_sqlite(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # transactions begin in `_begin_sqlite`, not implicitly
    connection.execute("PRAGMA foreign_keys = ON")
    _use_write_ahead_log(connection)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """WAL is a property of the file; the change needs it alone, and does not wait for that by itself."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            if mode != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _update_schema(database: Database) -> None:
    """Create the tables of a new store, migrate those of an older one, refuse any other."""
    with database.reading() as connection:
        if _revision(connection, database) == REVISIONS[-1]:
            return
    with database.writing() as connection:
        if database.file is None:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        revision = _revision(connection, database)  # another process may have been faster
        if revision == REVISIONS[-1]:
            return
        if revision and database.file is not None:
            _back_up(database.file, revision)
        try:
            _migrate(connection)
        except ValueError as error:  # of a decoder; the transaction is rolled back
            raise damaged_store(database.place, f"its runs cannot be migrated ({error})") from error


def _revision(connection: Connection, database: Database) -> str:
    """The revision of the schema; empty for an empty database."""
    names = set(inspect(connection).get_table_names())
    if VERSION_TABLE not in names:
        foreign = names if database.file is not None else names & set(metadata.tables)
        if foreign:
            raise InvalidRequest(
                f"{database.place} is a database of another application, with the tables "
                f"{', '.join(sorted(foreign))}; name another store in {VARIABLE}"
            )
        return ""
    revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if revision is None:
        raise damaged_store(database.place, f"its table {VERSION_TABLE} is empty")
    if revision not in REVISIONS:
        raise InvalidRequest(
            f"the store {database.place} was written by a newer foretrain (its schema is {revision}, this "
            f"version reads up to {REVISIONS[-1]}): update with `pip install --upgrade foretrain`, or name "
            f"another store in {VARIABLE}"
        )
    return str(revision)


def _back_up(file: Path, revision: str) -> None:
    """Copy the file before it is changed, whole or not at all."""
    copy = file.with_name(f"{file.name}.schema-{revision}.backup")
    partial = copy.with_name(f"{copy.name}.partial")
    partial.unlink(missing_ok=True)
    source, target = sqlite3.connect(file), sqlite3.connect(partial)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
    partial.replace(copy)


def _migrate(connection: Connection, revision: str = "head") -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    command.upgrade(config, revision)


@contextmanager
def failures_as_sentences(place: str) -> Iterator[None]:
    """Errors of foretrain in place of those of the database; `place` names the store, without secrets."""
    try:
        yield
    except IntegrityError:  # what it means depends on what was written
        raise
    except DBAPIError as error:
        raise _sentence(error.orig, place) from error
    except (sqlite3.Error, SQLAlchemyError) as error:
        raise _sentence(error, place) from error
    except OSError as error:
        raise unwritable(place, error.strerror or str(error)) from error


def unwritable(place: str, reason: str) -> BackendFailed:
    """The error of a store that cannot be written."""
    return BackendFailed(
        f"the store {place} cannot be written: {reason}; make the file and its folder writable, {ELSEWHERE}"
    )


def damaged_store(place: str, reason: str) -> InvalidData:
    """The error of a store whose content cannot be read."""
    advice = (
        "restore a backup of the database"
        if _is_server(place)
        else "move the file away to start a new store, restore a backup, or recover what can be read with "
        "`sqlite3 FILE .recover`"
    )
    return InvalidData(place, f"is no readable store: {reason}; {advice}")


def is_busy(error: BaseException | None) -> bool:
    """Whether another process holds the lock of an SQLite file."""
    return _code(error).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def _is_server(place: str) -> bool:
    return place.startswith("postgresql://")


def _code(error: BaseException | None) -> str:
    """SQLite's name of the error, else PostgreSQL's five characters; empty if unknown."""
    return str(getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None) or "")


def _sentence(error: BaseException | None, place: str) -> ForetrainError:
    code, text = _code(error), " ".join(str(error).split())
    if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return damaged_store(place, text)
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE")) or code == "53100":
        return BackendFailed(
            f"the disk of the store {place} is full ({text}): nothing of this change was stored, what was "
            f"stored before is intact; free some space, {ELSEWHERE}"
        )
    if is_busy(error):
        return BackendFailed(
            f"the store {place} has been locked by another process for {BUSY_SECONDS:g} s; end that process "
            "or try again later"
        )
    if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return unwritable(place, text)
    if _is_server(place) and (not code or code.startswith(("08", "28", "3D", "57P"))):
        return BackendFailed(
            f"no connection to the store {place}: {text}; check that the server runs, and host, port, user "
            f"and database in the URL, {ELSEWHERE}"
        )
    return BackendFailed(f"the store {place} failed: {text}")
