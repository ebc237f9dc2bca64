"""How long a user waits for a plan over all current offers. Each run is a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache

from benchmarks.timing import benchmark

_PLAN = "plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h".split()


@cache
def _home(kind: str) -> str:
    """A cache of graphs of its own, for runs that find the model traced and for those that do not."""
    return tempfile.mkdtemp(prefix=f"foretrain-bench-{kind}-")


def _plan(home: str) -> None:
    environment = os.environ | {"FORETRAIN_HOME": home}
    command = [sys.executable, "-m", "foretrain", *_PLAN]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)


def _trace() -> None:
    _warmed()


@cache
def _warmed() -> None:
    _plan(_home("warm"))


def _forget() -> None:
    shutil.rmtree(_home("cold"), ignore_errors=True)


@benchmark("plan resnet50, warm", target_seconds=3.0, runs=5, prepare=_trace)
def plan_warm() -> None:
    """Every current offer, count, strategy and batch size, with a model that was traced before."""
    _plan(_home("warm"))


@benchmark("plan resnet50, cold", target_seconds=8.0, runs=3, prepare=_forget)
def plan_cold() -> None:
    """The same with a model foretrain has never seen: torch is imported and the step is traced."""
    _plan(_home("cold"))
