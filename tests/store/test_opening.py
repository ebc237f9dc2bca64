"""Stores that are new, older, newer, damaged, locked, out of reach, or somewhere that cannot be written."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from tests.support.postgres import PostgresServer, postgres_server
from tests.support.runs import STARTED, plain_run, whole_run

from foretrain.errors import BackendFailed, InvalidData, InvalidRequest, MissingData
from foretrain.store import RunQuery, migrations, open_store, opening, tables

OLD_RUN = {
    "id": "old",
    "started_at": "2026-11-16 12:30:15.123456",
    "seconds": 2.5,
    "status": "completed",
    "command": '["python"]',
    "setting": '{"model":"lenet","batch":8}',
    "environment": "e",
    "provenance": "measure",
    "message": "",
}


def at_first_revision(url: str) -> None:
    """A store as the first version of the schema left it, with one run."""
    database = opening._connectable(opening._parse_url(url))
    with database.writing() as connection:
        opening._migrate(connection, migrations.REVISIONS[0])
        environment = {column.name: "" for column in tables.environments.c} | {
            "id": "e", "device": "here", "devices_per_node": 1, "nodes": 1, "cores": 2, "memory_bytes": 1,
            "versions": "{}",
        }  # fmt: skip
        for table, row in (("environments", environment), ("runs", OLD_RUN)):
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)


def set_revision(url: str, revision: str | None) -> None:
    with opening.open_database(url).writing() as connection:
        connection.execute(text(f"DELETE FROM {tables.VERSION_TABLE}"))
        if revision:
            connection.execute(
                text(f"INSERT INTO {tables.VERSION_TABLE} VALUES (:revision)"), {"revision": revision}
            )


def test_the_revisions_are_those_of_the_files() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    files = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(reversed([each.revision for each in files])) == migrations.REVISIONS


def test_migrations_make_the_tables_as_declared(url: str) -> None:
    with open_store(url):
        pass
    with opening.open_database(url).reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": tables.VERSION_TABLE, "compare_type": _differs}
        )
        assert compare_metadata(context, tables.metadata) == []


def _differs(_: Any, __: Any, ___: Any, inspected: Any, declared: Any) -> bool:
    """Types that are stored as others (JSON as text) are compared as what they are stored as."""
    stored = (
        declared.impl
        if isinstance(declared, tables.PlainData | tables.QuantityColumn | tables.UtcTime)
        else declared
    )
    same: dict[str, str] = {"DOUBLE_PRECISION": "DOUBLE", "TIMESTAMP": "DATETIME", "BYTEA": "LARGEBINARY"}
    names = [
        same.get(type(each).__name__.upper(), type(each).__name__.upper()) for each in (inspected, stored)
    ]
    synonyms = {"VARCHAR": "STRING", "BIGINT": "BIGINTEGER", "BLOB": "LARGEBINARY"}
    return len({synonyms.get(name, name) for name in names}) > 1


def test_an_older_schema_is_migrated_with_its_runs(url: str) -> None:
    at_first_revision(url)
    with open_store(url) as store:
        (run,) = store.runs(RunQuery(model="lenet"))
        assert (run.id, run.started_at, run.setting["batch"], run.summary) == ("old", STARTED, 8, None)
        store.add(whole_run())
        assert len(store.runs()) == 2


def test_the_older_file_is_kept_as_a_backup(tmp_path: Path) -> None:
    at_first_revision(str(tmp_path / "runs.sqlite"))
    with open_store(str(tmp_path / "runs.sqlite")):
        pass
    backup = tmp_path / "runs.sqlite.schema-0001.backup"
    with sqlite3.connect(backup) as connection:
        assert connection.execute("SELECT version_num FROM foretrain_schema").fetchall() == [("0001",)]
        assert connection.execute("SELECT id FROM runs").fetchall() == [("old",)]
    connection.close()
    assert {path.name for path in tmp_path.iterdir()} <= {"runs.sqlite", backup.name, "home"}


def test_a_migration_that_fails_changes_nothing(url: str) -> None:
    at_first_revision(url)
    with opening._connectable(opening._parse_url(url)).writing() as connection:
        connection.execute(text("UPDATE runs SET setting = 'no JSON'"))
    with pytest.raises(InvalidData, match="its runs cannot be migrated"):
        open_store(url)
    with opening._connectable(opening._parse_url(url)).reading() as connection:
        assert connection.execute(text(f"SELECT * FROM {tables.VERSION_TABLE}")).scalar() == "0001"
        assert "model" not in list(connection.execute(text("SELECT * FROM runs")).keys())


def test_a_newer_schema_is_refused(url: str) -> None:
    set_revision(url, "0099")
    with pytest.raises(InvalidRequest, match=r"newer foretrain .*0099.*`pip install --upgrade foretrain`"):
        open_store(url)


def test_a_store_without_a_revision_is_refused(url: str) -> None:
    set_revision(url, None)
    with pytest.raises(InvalidData, match="foretrain_schema is empty"):
        open_store(url)


def test_a_database_of_another_application_is_refused(url: str) -> None:
    with opening._connectable(opening._parse_url(url)).writing() as connection:
        connection.execute(text("CREATE TABLE runs (id INTEGER)"))
    with pytest.raises(
        InvalidRequest, match="database of another application, with the tables runs; name another"
    ):
        open_store(url)


@pytest.mark.parametrize("content", [b"not a database at all\n" * 100, b"SQLite format 3\0" + b"\xff" * 4080])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "runs.sqlite"
    file.write_bytes(content)
    with pytest.raises(InvalidData, match=r"is no readable store.*move the file away.*\.recover"):
        open_store(str(file))
    assert file.read_bytes() == content


def test_a_damaged_store_is_reported_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "runs.sqlite"
    with open_store(str(file)) as store:
        store.add_new([whole_run() for _ in range(40)])
    content = bytearray(file.read_bytes())
    page = 4096
    last = 3 * len(content) // page // 4  # pages before describe the tables, these hold runs
    for start in range(last * page, len(content), page):
        content[start : start + page] = b"\xa5" * page
    file.write_bytes(content)
    with open_store(str(file)) as store, pytest.raises(InvalidData, match="is no readable store"):
        store.runs(with_series=True)


def test_damaged_arrays_are_reported(url: str) -> None:
    with open_store(url) as store:
        store.add(whole_run())
        with opening.open_database(url).writing() as connection:
            connection.execute(tables.series.update().values(values=b"\x01broken"))
        with pytest.raises(InvalidData, match="data of a run cannot be decoded"):
            store.runs(with_series=True)
        assert len(store.runs()) == 1


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "runs.sqlite").touch()
    with open_store(str(tmp_path / "runs.sqlite")) as store:
        assert store.runs() == []


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="is a folder; name a file"):
        open_store(str(tmp_path))


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        BackendFailed, match=r"cannot be written: .*; make the file and its folder writable, or name"
    ):
        open_store(str(tmp_path / "file" / "runs.sqlite"))


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "sqlite://", "postgresql://host:port/x", "sqlite:///:memory:"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequest, match="it must be the path of an SQLite file, or postgresql://"):
        open_store(url)


def test_a_locked_store_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUSY_SECONDS", 0.2)
    file = tmp_path / "runs.sqlite"
    with open_store(str(file)) as store:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BackendFailed, match=r"locked by another process for 0.2 s; end that process"):
            store.add(plain_run())
        assert store.runs() == []  # readers do not wait
        other.close()
        store.add(plain_run())


@pytest.mark.parametrize("option", ["ro", "size=64k", "size=400k"])
def test_a_disk_that_is_full_or_read_only(tmp_path: Path, option: str) -> None:
    """On a real file system: mounted in a namespace of its own, it needs root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            MOUNTED,
            "sh",
            option,
            disk,
            sys.executable,
            "-c",
            FILLING,
            disk / "s",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in mounted.stderr or "mount:" in mounted.stderr:
        pytest.skip(f"no mount namespaces here: {mounted.stderr.strip()}")
    assert mounted.returncode == 0, mounted.stderr
    stored, sentence = mounted.stdout.split("\n", 1)
    if option == "ro":
        assert "cannot be written: no permission to write" in sentence
    else:
        assert "is full" in sentence
        assert (
            "nothing of this change was stored, what was stored before is intact; free some space" in sentence
        )
    assert int(stored) >= (1 if option == "size=400k" else 0)


MOUNTED = 'mount -t tmpfs -o "$1" none "$2"; shift 2; exec "$@"'
FILLING = """
import sys
import numpy as np
from foretrain.errors import BackendFailed
from foretrain.store import open_store
from foretrain.store.runs import Resource, ResourceSeries
from tests.support.runs import plain_run

noise = np.random.default_rng(1).normal(size=4000)
series = ResourceSeries(resource=Resource.CPU, worker=0, seconds=np.arange(4000.0), values=noise)
added, reported = [], ""
try:
    with open_store(sys.argv[1]) as store:
        for index in range(100):
            store.add(plain_run(id=str(index), series=(series,)))
            added.append(str(index))
except BackendFailed as error:
    reported = str(error)
if added:
    with open_store(sys.argv[1]) as store:
        whole = store.runs(with_series=True)
    assert sorted(run.id for run in whole) == sorted(added), "what was stored before is intact"
    assert all(len(run.series[0].values) == 4000 for run in whole)
print(len(added))
print(reported)
"""


@pytest.fixture
def no_psycopg(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in sys.modules if name.partition(".")[0] == "psycopg"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    yield


@pytest.mark.usefixtures("no_psycopg")
def test_without_psycopg_the_error_says_what_to_install() -> None:
    with pytest.raises(MissingData, match=r"pip install 'foretrain\[postgres\]'"):
        open_store("postgresql://app@127.0.0.1/x")


def test_a_server_out_of_reach_is_reported_without_the_password() -> None:
    with pytest.raises(
        BackendFailed, match=r"no connection to the store .*check that the server runs"
    ) as refused:
        open_store("postgresql://app:secret@127.0.0.1:1/x")
    assert "secret" not in str(refused.value)


def test_an_unknown_database_is_reported(postgres: PostgresServer) -> None:
    with pytest.raises(BackendFailed, match=r'no connection to .* database "unknown" does not exist'):
        open_store(postgres.url("unknown"))


def test_a_server_that_goes_away_is_reported(postgres: PostgresServer) -> None:
    del postgres  # only whether one can be started
    with postgres_server() as server:
        store = open_store(server.new_database())
        store.add(plain_run())
    with pytest.raises(BackendFailed, match="check that the server runs"):
        store.add(plain_run())


def test_other_tables_of_a_postgresql_database_are_left_alone(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    postgres.execute("CREATE TABLE alembic_version (version_num TEXT)", url)
    with open_store(url) as store:
        store.add(plain_run())
        assert len(store.runs()) == 1


def test_the_database_library_is_imported_only_when_a_store_is_opened() -> None:
    code = (
        "import sys, foretrain, foretrain.store, foretrain.store.runs, foretrain.serving.cli.app;"
        "print([name for name in ('sqlalchemy', 'alembic', 'psycopg') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
