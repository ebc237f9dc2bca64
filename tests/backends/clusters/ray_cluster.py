"""On a real Ray cluster of two nodes; run by `test_on_clusters` inside `scripts/ray_for_tests.sh`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import faults
from tests.support.real_schedules import real_backend

from foretrain.backends.backend import RealBackend
from foretrain.scheduling.problem import Problem
from foretrain.testing import BackendSuite

STATE = Path(os.environ["RAY_TEST_STATE"])


class TestRay(BackendSuite):
    job_seconds = 2.0

    @contextmanager
    def backend(self, problem: Problem, folder: Path) -> Iterator[RealBackend]:
        with real_backend("ray", problem, folder) as backend:
            yield backend


def test_foretrain_is_killed(tmp_path: Path) -> None:
    faults.kill_foretrain(tmp_path, "ray")


def test_a_supervisor_is_killed(tmp_path: Path) -> None:
    faults.kill_supervisor(tmp_path, "ray")


def test_a_node_dies_and_returns(tmp_path: Path) -> None:
    faults.kill_ray_node(tmp_path, STATE)
