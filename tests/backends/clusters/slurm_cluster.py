"""On a real Slurm of two nodes; run by `test_on_clusters` inside `scripts/slurm_for_tests.sh`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import faults
from tests.support.real_schedules import real_backend

from foretrain.backends.backend import RealBackend
from foretrain.scheduling.problem import Problem
from foretrain.testing import BackendSuite

STATE = Path(os.environ["SLURM_TEST_STATE"])


class TestSlurm(BackendSuite):
    job_seconds = 2.0

    @contextmanager
    def backend(self, problem: Problem, folder: Path) -> Iterator[RealBackend]:
        with real_backend("slurm", problem, folder) as backend:
            yield backend


def test_foretrain_is_killed(tmp_path: Path) -> None:
    faults.kill_foretrain(tmp_path, "slurm")


def test_a_job_is_killed(tmp_path: Path) -> None:
    faults.kill_job(tmp_path, "slurm")


def test_a_node_dies(tmp_path: Path) -> None:
    """Its daemon and the steps it started; a step that outlived it would be fenced."""
    faults.kill_slurm_node(tmp_path, STATE)


def test_only_the_daemon_of_a_node_dies(tmp_path: Path) -> None:
    """The job's processes go on until they see that another attempt owns the job."""
    faults.kill_slurm_node(tmp_path, STATE, with_steps=False)
    assert "node-a" in subprocess.run(["sinfo"], capture_output=True, text=True, check=True).stdout
