"""Both databases: a file of SQLite, and a private PostgreSQL server per test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres import PostgresServer, postgres_server, why_no_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of this process; its databases are theirs."""
    reason = why_no_postgres()
    if reason:
        pytest.skip(reason)
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a store, once in each database."""
    if request.param == "sqlite":
        return str(tmp_path / "runs.sqlite")
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()
