"""A schedule is the same on a CPU with fewer features: sums and powers differ in their last bit there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "origins"
_OPTIONAL = """
from numpy._core._multiarray_umath import __cpu_dispatch__ as known, __cpu_features__ as has
print(*[name for name in known if has.get(name)])
"""


def _simulated(environment: dict[str, str]) -> dict[str, float]:
    files = [str(EXAMPLES / "prototype_jobs.csv"), "--cluster", str(EXAMPLES / "prototype_cluster.yaml")]
    command = [sys.executable, "-m", "foretrain", "simulate", *files, "--policy", "auto", "--json"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=120
    )
    return {job["job"]: job["finish_seconds"] for job in json.loads(done.stdout)["jobs"]}


def test_jobs_run_at_the_same_times() -> None:
    features = subprocess.run(
        [sys.executable, "-c", _OPTIONAL], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    other = {"OPENBLAS_CORETYPE": "Haswell"}
    if features:
        other["NPY_DISABLE_CPU_FEATURES"] = features
    assert _simulated(other) == pytest.approx(_simulated({}), rel=1e-6)
