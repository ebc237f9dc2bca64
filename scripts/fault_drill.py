"""Repeat every fault many times: `python scripts/fault_drill.py [--times 20] [--backend local|ray|slurm
...]`.

Faults: kill -9 of foretrain, of a job's command, of its supervisor, of a Ray node, of slurmd with and without
its steps. After each, every job must be complete, with each step done once and in order. On Ray and Slurm the
script runs itself beside a cluster of the project's scripts (root on Debian). Takes about a quarter of a
minute per fault.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support import faults  # noqa: E402 - found only now

CLUSTERS = {"ray": "ray_for_tests.sh", "slurm": "slurm_for_tests.sh"}
_INSIDE = "FORETRAIN_INSIDE_CLUSTER"


def drills(backend: str) -> dict[str, Callable[[Path], object]]:
    """The faults of a backend."""
    common: dict[str, Callable[[Path], object]] = {
        "kill foretrain": lambda folder: faults.kill_foretrain(folder, backend),
        "kill a job": lambda folder: faults.kill_job(folder, backend),
        "kill a supervisor": lambda folder: faults.kill_supervisor(folder, backend),
    }
    if backend == "ray":
        state = Path(os.environ["RAY_TEST_STATE"])
        return {**common, "kill a Ray node": lambda folder: faults.kill_ray_node(folder, state)}
    if backend == "slurm":
        state = Path(os.environ["SLURM_TEST_STATE"])
        return {
            **common,
            "kill slurmd and its steps": lambda folder: faults.kill_slurm_node(folder, state),
            "kill slurmd alone": lambda folder: faults.kill_slurm_node(folder, state, with_steps=False),
        }
    return common


def drill(backend: str, times: int) -> int:
    """Repeat the faults of one backend; returns how many went wrong."""
    wrong = 0
    for name, fault in drills(backend).items():
        passed, start = 0, time.monotonic()
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="drill-") as folder:
                try:
                    fault(Path(folder))
                    passed += 1
                except AssertionError as error:
                    sys.stderr.write(f"{backend}, {name}: {error}\n")
        wrong += times - passed
        seconds = (time.monotonic() - start) / times
        sys.stdout.write(f"{backend:6} {name:26} {passed} of {times} passed, {seconds:.0f} s each\n")
        sys.stdout.flush()
    return wrong


def main() -> int:
    """Drill the backends that are named, each beside its cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--backend", action="append", choices=["local", *CLUSTERS])
    given = parser.parse_args()
    wrong = 0
    for backend in given.backend or ["local", *CLUSTERS]:
        if backend in CLUSTERS and os.environ.get(_INSIDE) != backend:
            script = str(ROOT / "scripts" / CLUSTERS[backend])
            command = [script, sys.executable, __file__, "--times", str(given.times), "--backend", backend]
            environment = {**os.environ, _INSIDE: backend, "PYTHON": sys.executable}
            wrong += subprocess.run(command, env=environment, check=False).returncode != 0
        else:
            wrong += drill(backend, given.times)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
