"""`examples/ci_budget.sh` fails a pipeline where a budget is exceeded, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "ci_budget.sh"
JOB = ("mnist-cnn", "--on", "aws:g5.xlarge", "--batch", "64", "--precision", "fp32")
EPOCHS = ("--samples", "60000", "--epochs", "10")


def run(*arguments: str, **limits: str) -> tuple[int, str]:
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", SCRIPT, *arguments],
        env={**os.environ, "PATH": search, **limits},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_within_the_budget_it_passes() -> None:
    code, text = run(*JOB, *EPOCHS, MAX_STEP_SECONDS="10", MAX_MEMORY_GIB="20", MAX_USD="100")
    assert code == 0, text
    assert text.count("ok: ") == 3 and "EXCEEDED" not in text


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"MAX_STEP_SECONDS": "1e-9", "MAX_USD": "100"}, "s a step, limit 1e-09"),
        ({"MAX_MEMORY_GIB": "0.001"}, "GiB on each GPU, limit 0.001"),
        ({"MAX_USD": "0.0001", "QUANTILE": "p90"}, "USD for the job, limit 0.0001"),
    ],
)
def test_over_a_limit_it_fails_and_names_the_limit(limits: dict[str, str], message: str) -> None:
    code, text = run(*JOB, *EPOCHS, **limits)
    assert code == 1
    assert any(line.startswith("EXCEEDED: ") and line.endswith(message) for line in text.splitlines()), text


def test_a_job_that_does_not_fit_fails_without_limits() -> None:
    code, _ = run("resnet50", "--on", "aws:g5.xlarge", "--batch", "20000", "--precision", "fp32")
    assert code == 1


def test_a_limit_in_money_needs_the_length_of_the_job() -> None:
    code, text = run(*JOB, MAX_USD="1")
    assert code == 1 and "MAX_USD needs the length of the job" in text
