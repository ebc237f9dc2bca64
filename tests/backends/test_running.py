"""What happens to jobs that fail, to other schedules of the same name, and to the forecast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.real_schedules import QUICK, problem, real_backend

from foretrain.backends.executors._base import connect, executors
from foretrain.backends.job_files import JobCommand
from foretrain.backends.run import run_schedule
from foretrain.errors import InvalidRequest, UnknownName
from foretrain.scheduling.accounting import JobStatus
from foretrain.scheduling.policies.rules import Fifo
from foretrain.scheduling.problem import Problem

ENDING = JobCommand("{python} -I -S -c 'print(1)'")
FAILING = JobCommand("{python} -I -S -c 'raise SystemExit(\"no data in {checkpoint}\")'")


def test_a_command_that_always_fails_is_given_up_with_what_it_printed(tmp_path: Path) -> None:
    made = problem(2, apart_seconds=0.0)
    run = run_schedule(
        made,
        {"job 0": FAILING, "job 1": ENDING},
        Fifo(),
        name="failing",
        folder=tmp_path / "schedule",
        store=str(tmp_path / "store.sqlite"),
        options=replace(QUICK, max_failures=2),
    )
    failed, completed = run.outcome.jobs
    assert failed.status is JobStatus.FAILED
    assert failed.starts == 2
    assert "exit code 1; it printed: no data in" in failed.message
    assert completed.status is JobStatus.COMPLETED
    assert run.to_dict()["slots"]

    again = run_schedule(
        made,
        {"job 0": FAILING, "job 1": ENDING},
        Fifo(),
        name="failing",
        folder=tmp_path / "schedule",
        store=str(tmp_path / "store.sqlite"),
        options=QUICK,
    )
    assert again.outcome.jobs == run.outcome.jobs  # what has ended is not run again

    with pytest.raises(InvalidRequest, match="another jobs or fleet"):
        run_schedule(
            problem(3),
            {f"job {number}": ENDING for number in range(3)},
            Fifo(),
            name="failing",
            folder=tmp_path / "schedule",
            store=str(tmp_path / "store.sqlite"),
        )


def test_every_job_needs_a_command(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidRequest, match="'job 0' has no command"),
        real_backend("local", Problem((), problem().fleet), tmp_path) as backend,
    ):
        type(backend)(problem(), {}, connect("local", problem().fleet), *[None] * 3)  # type: ignore[arg-type]


def test_executors_are_found_by_name_and_their_options_are_checked() -> None:
    assert sorted(executors()) == ["local", "ray", "slurm"]
    with pytest.raises(UnknownName, match="option of the backend 'local'"):
        connect("local", problem().fleet, {"addres": "x"})
    with pytest.raises(UnknownName, match="no backend 'slrum'; did you mean slurm"):
        connect("slrum", problem().fleet)


def test_devices_of_this_machine_are_equal_parts_of_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    local = connect("local", problem().fleet)  # two nodes of two devices
    assert [local.cpus(f"local-{node}", (device,)) for node in (0, 1) for device in (0, 1)] == [
        (0, 1), (2, 3), (4, 5), (6, 7)
    ]  # fmt: skip
    assert local.cpus("local-1", (0, 1)) == (4, 5, 6, 7)
    assert local.environment("local-1", (0, 1))["OMP_NUM_THREADS"] == "4"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    assert connect("local", problem().fleet).cpus("local-1", (0, 1)) == (3,)
