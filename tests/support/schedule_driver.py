"""Runs a small schedule in a process of its own, which a test may kill: `schedule_driver.py FOLDER
[options]`.

`--die-at POINT:N` kills the process itself, as kill -9 does, when it comes to POINT for the Nth time:
`intended` (an attempt is stored as starting), `launched` (it was started, its handle is not stored),
`stored` (all is stored), `noticed` (the end of an attempt was seen, but not stored).
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.real_schedules import QUICK, commands, problem

from foretrain.backends import attempts, backend
from foretrain.backends.run import run_schedule
from foretrain.scheduling.policies.rules import Fifo

POINTS = ("intended", "launched", "stored", "noticed")


def _dying(call: Callable[..., Any], count: int, *, after: bool) -> Callable[..., Any]:
    """A method that kills the process at its Nth call, before or after it did its work."""
    calls = iter(range(1, 10**6))

    def wrapped(*given: Any, **options: Any) -> Any:
        is_last = next(calls) == count
        if is_last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*given, **options)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


def _set_up_death(point: str, count: int) -> None:
    owner, name, after = {
        "intended": (attempts.Attempts, "launch", False),
        "launched": (attempts.Attempts, "launch", True),
        "stored": (backend.RealBackend, "_start", True),
        "noticed": (backend.RealBackend, "_close", False),
    }[point]
    setattr(owner, name, _dying(getattr(owner, name), count, after=after))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--backend", default="local")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--die-at", default="")
    given = parser.parse_args()
    if given.die_at:
        point, _, count = given.die_at.partition(":")
        _set_up_death(point, int(count))
    made = problem(given.jobs, given.steps, given.step_seconds)
    run = run_schedule(
        made,
        commands(made, given.folder, given.steps, given.step_seconds),
        Fifo(),
        given.backend,
        name="driven",
        folder=given.folder / "schedule",
        store=str(given.folder / "store.sqlite"),
        backend_options={"unresponsive_seconds": "1"} if given.backend == "slurm" else None,
        options=QUICK,
    )
    (given.folder / "result.json").write_text(run.to_json())


if __name__ == "__main__":
    main()
