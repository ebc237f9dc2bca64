"""The suite of backends on the simulation and on this machine; on real clusters in `test_on_clusters`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.real_schedules import real_backend

from foretrain.backends.backend import RealBackend
from foretrain.scheduling.problem import Problem
from foretrain.scheduling.simulation import Simulation
from foretrain.testing import BackendSuite


class TestSimulation(BackendSuite):
    @contextmanager
    def backend(self, problem: Problem, folder: Path) -> Iterator[Simulation]:
        del folder
        yield Simulation(problem)


class TestLocal(BackendSuite):
    job_seconds = 2.0

    @contextmanager
    def backend(self, problem: Problem, folder: Path) -> Iterator[RealBackend]:
        with real_backend("local", problem, folder) as backend:
            yield backend
