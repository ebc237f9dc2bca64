"""kill -9 of foretrain at any point, and of jobs: all jobs finish, none is lost or doubled. This machine
only.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.support import faults
from tests.support.schedule_driver import POINTS


def test_foretrain_dies_at_every_point_of_a_change(tmp_path: Path) -> None:
    for point in POINTS:
        driver = faults.start_driver(tmp_path, "local", "--die-at", f"{point}:1")
        assert driver.wait(60) == -signal.SIGKILL, (tmp_path / "driver.log").read_text()
    faults.finish(tmp_path)


def test_jobs_that_end_while_foretrain_is_dead_are_noticed(tmp_path: Path) -> None:
    driver = faults.start_driver(tmp_path)
    faults.wait(lambda: faults.steps_done(tmp_path, "job 1") >= 1, "a running job")
    driver.kill()
    driver.wait()
    running = ("job 0", "job 1")
    faults.wait(
        lambda: all(faults.steps_done(tmp_path, job) == faults.STEPS for job in running), "the end of both"
    )
    result = faults.finish(tmp_path)
    assert [each["starts"] for each in result["jobs"]] == [1] * faults.JOBS


def test_a_killed_command_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    faults.kill_job(tmp_path)


def test_a_killed_supervisor_takes_its_command_along(tmp_path: Path) -> None:
    faults.kill_supervisor(tmp_path)
