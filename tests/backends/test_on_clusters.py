"""The suite of backends and the faults on real clusters of Slurm and Ray, each in namespaces of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from foretrain.measuring.distributed_trials.namespaces import why_not

ROOT = Path(__file__).parents[2]
NAMESPACES = pytest.mark.skipif(why_not() is not None, reason=f"no namespaces here: {why_not()}")


def run_inside(script: str, tests: str, folder: Path) -> None:
    """Run tests beside a cluster; all of them must pass."""
    command = [ROOT / "scripts" / script, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    inner = ["-p", "no:xdist", "--basetemp", folder / "inner", ROOT / "tests/backends/clusters" / tests]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "RAY_"))
    }
    run = subprocess.run(
        [str(part) for part in (*command, *inner)],
        cwd=ROOT,
        env={**environment, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@NAMESPACES
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="Slurm is unpacked from Debian's packages")
def test_on_slurm(tmp_path: Path) -> None:
    run_inside("slurm_for_tests.sh", "slurm_cluster.py", tmp_path)


@NAMESPACES
def test_on_ray(tmp_path: Path) -> None:
    run_inside("ray_for_tests.sh", "ray_cluster.py", tmp_path)
