"""A private PostgreSQL server for tests: on a free port, in a folder of its own, ended with the tests."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

_PATIENCE_SECONDS = 60.0
_PARENT_DIES = 1  # PR_SET_PDEATHSIG of prctl(2)
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))


def why_no_postgres() -> str | None:
    """Why no server can be started here; None if one can."""
    if not _FOLDERS:
        return "PostgreSQL is not installed: sh scripts/install_test_tools.sh (as root on Debian)"
    try:
        pwd.getpwnam(_user())
    except KeyError:
        return f"there is no user {_user()!r} to run PostgreSQL as, and root may not"
    return None


@dataclass(frozen=True)
class PostgresServer:
    """A running server; anyone on this machine may connect as `app`."""

    port: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://app@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, url: str | None = None) -> None:
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A new server, stopped and removed afterwards."""
    folder = Path(
        tempfile.mkdtemp(prefix="foretrain-pg-")
    )  # short: a socket's path has at most 107 characters
    if os.geteuid() == 0:
        shutil.chown(folder, _user())
    data, log = folder / "data", folder / "log"
    programs = _FOLDERS[-1]
    try:
        options = ("-A", "trust", "-U", "app", "-E", "UTF8", "--locale=C", "--no-sync")
        subprocess.run(
            [programs / "initdb", "-D", data, *options],
            check=True,
            capture_output=True,
            cwd=folder,
            **_as_server_user(),
        )
        port = _free_port()
        settings = (f"unix_socket_directories={folder}", "listen_addresses=127.0.0.1", "fsync=off")
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        command += [part for setting in settings for part in ("-c", setting)]
        with log.open("wb") as output:
            server = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                cwd=folder,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no locks
                **_as_server_user(),
            )
        try:
            running = PostgresServer(port)
            _wait_for(running, server, log)
            yield running
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: its data is deleted
            server.wait(_PATIENCE_SECONDS)
    finally:
        shutil.rmtree(folder)


def _user() -> str:
    return "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def _as_server_user() -> dict[str, Any]:
    return {"user": _user(), "group": _user(), "extra_groups": []} if os.geteuid() == 0 else {}


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGQUIT)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(server: PostgresServer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            psycopg.connect(server.url(), connect_timeout=5).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {log.read_text()}") from error
            time.sleep(0.05)
