"""Eight processes write at once, some are killed: nothing is lost, doubled or half stored."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from contextlib import closing
from multiprocessing.context import SpawnProcess
from pathlib import Path

from tests.store.test_opening import at_first_revision
from tests.support.runs import assert_same, plain_run, whole_run

from foretrain.errors import InvalidRequest
from foretrain.store import RunQuery, open_store
from foretrain.store.runs import Status

PROCESSES, RUNS = 8, 12
CONTEXT = multiprocessing.get_context("spawn")


def started(target: object, *arguments: object) -> SpawnProcess:
    process = CONTEXT.Process(target=target, args=arguments)  # type: ignore[arg-type]
    process.start()
    return process


def write(url: str, writer: int) -> None:
    """Open the store and add runs, one transaction each."""
    for index in range(RUNS):
        with open_store(url) as store:
            store.add(whole_run(id=f"{writer}-{index}", campaign="c", trial=f"{writer}-{index}"))


def write_same_trials(url: str, writer: int) -> None:
    """Add the trials that every writer adds: of each, one writer succeeds."""
    stored = 0
    with open_store(url) as store:
        for index in range(RUNS):
            try:
                store.add(plain_run(campaign="c", trial=str(index)))
                stored += 1
            except InvalidRequest as error:
                assert "is stored already" in str(error)
    assert stored <= RUNS, writer


def write_same_ids(url: str) -> None:
    with open_store(url) as store:
        store.add_new([plain_run(id=str(index)) for index in range(RUNS)])


def write_until_killed(url: str) -> None:
    while True:
        with open_store(url) as store:
            store.add(whole_run(provenance=str(os.getpid())))


def ended_well(processes: list[SpawnProcess]) -> None:
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_writers_that_create_the_store_together_lose_nothing(url: str) -> None:
    ended_well([started(write, url, writer) for writer in range(PROCESSES)])
    with open_store(url) as store:
        stored = store.runs(with_series=True)
        assert {run.id for run in stored} == {f"{w}-{i}" for w in range(PROCESSES) for i in range(RUNS)}
        assert len(stored) == PROCESSES * RUNS
        for run in stored:
            assert_same(run, whole_run(id=run.id, campaign="c", trial=run.id))


def open_and_count(url: str) -> None:
    with open_store(url) as store:
        assert len(store.runs(RunQuery(model="lenet"))) == 1


def test_an_older_store_opened_by_all_at_once_is_migrated_once(url: str) -> None:
    at_first_revision(url)
    ended_well([started(open_and_count, url) for _ in range(PROCESSES)])
    if not url.startswith("postgresql"):
        with closing(sqlite3.connect(f"{url}.schema-0001.backup")) as connection:
            assert connection.execute("SELECT id FROM runs").fetchall() == [("old",)]


def test_a_trial_is_stored_by_one_writer_only(url: str) -> None:
    ended_well([started(write_same_trials, url, writer) for writer in range(PROCESSES)])
    with open_store(url) as store:
        assert store.trials("c") == {str(index): Status.COMPLETED for index in range(RUNS)}
        assert len(store.runs()) == RUNS


def test_importing_the_same_runs_at_once_stores_them_once(url: str) -> None:
    ended_well([started(write_same_ids, url) for _ in range(4)])
    with open_store(url) as store:
        assert len(store.runs()) == RUNS


def test_a_killed_writer_leaves_whole_runs_only(url: str) -> None:
    with open_store(url) as store:
        writers = [started(write_until_killed, url) for _ in range(3)]
        while len(store.runs(RunQuery(limit=20))) < 20:
            assert all(process.is_alive() for process in writers)
        for process in writers:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        stored = store.runs(with_series=True)
        for run in stored:
            assert_same(run, whole_run(id=run.id, provenance=run.provenance))
        store.add(plain_run())
        assert len(store.runs()) == len(stored) + 1


def test_a_killed_writer_leaves_an_intact_file(tmp_path: Path) -> None:
    file = tmp_path / "runs.sqlite"
    test_a_killed_writer_leaves_whole_runs_only(str(file))
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    connection.close()
