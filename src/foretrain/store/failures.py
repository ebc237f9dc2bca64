"""Failures of a database as sentences: what happened to which store, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from foretrain.errors import BackendFailed, ForetrainError, InvalidData

ELSEWHERE = "or name another store in FORETRAIN_STORE"
BUSY_SECONDS = 60.0
"""How long a writer waits for other writers."""


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
