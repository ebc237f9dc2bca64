"""Run a schedule for real: begin it, or go on with the one of that name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from foretrain.backends.answer import RealRun
from foretrain.backends.attempts import RunOptions
from foretrain.backends.backend import RealBackend
from foretrain.backends.executors._base import connect
from foretrain.backends.job_files import JobCommand
from foretrain.backends.records import digest, new_head
from foretrain.errors import InvalidRequest
from foretrain.facts.user_data import user_data_dir
from foretrain.scheduling.loop import LoopTurn, Policy, drive
from foretrain.scheduling.problem import Problem
from foretrain.scheduling.simulation import simulate
from foretrain.store.locks import hold
from foretrain.store.schedules import ScheduleStore, StoredSchedule, open_schedules


def run_schedule(
    problem: Problem,
    commands: Mapping[str, JobCommand],
    policy: Policy,
    backend: str = "local",
    *,
    name: str = "schedule",
    folder: Path | None = None,
    store: str | None = None,
    backend_options: Mapping[str, str] | None = None,
    options: RunOptions | None = None,
    observe: Callable[[LoopTurn], None] = lambda _: None,
    simulates_first: bool = False,
) -> RealRun:
    """Run the jobs of a problem, each by its command, until all have ended.

    A schedule of this `name` in the `store` goes on where it was: jobs that ended meanwhile are noticed,
    those that run are kept, and none is started twice. `folder` holds checkpoints, progress and output of
    jobs; the nodes of a cluster must share it. `simulates_first` also simulates the whole schedule
    beforehand.
    """
    schedules = open_schedules(store)
    place = (folder or user_data_dir() / "schedules" / _file_name(name)).absolute()
    with hold(place / "lock", f"the schedule {name!r}"):
        executor = connect(backend, problem.fleet, backend_options)
        try:
            is_new = schedules.schedule(name) is None
            simulated = simulate(problem, policy).execution_usd if simulates_first and is_new else None
            stored = _open_schedule(schedules, name, backend, policy.name, place, problem)
            real = RealBackend(problem, commands, executor, schedules, stored, options or RunOptions())
            drive(real, policy, observe)
        finally:
            executor.close()
    return RealRun(
        name=name,
        backend=backend,
        outcome=real.outcome(policy.name),
        slots=real.slots(),
        simulated_usd=simulated,
    )


def _open_schedule(
    schedules: ScheduleStore, name: str, backend: str, policy: str, folder: Path, problem: Problem
) -> StoredSchedule:
    """The schedule of a name, begun now if there is none."""
    stored = schedules.schedule(name)
    if stored is None:
        schedules.add(new_head(name, backend, policy, folder, problem))
        stored = schedules.schedule(name)
        assert stored is not None, "it was just added"
        return stored
    differing = {
        "backend": (stored.head["backend"], backend),
        "folder": (stored.head["folder"], str(folder)),
        "jobs or fleet": (stored.head["problem"], digest(problem)),
    }
    for what, (before, now) in differing.items():
        if before != now:
            raise InvalidRequest(
                f"the schedule {name!r} of the store {schedules.place} has another {what} ({before}, not "
                f"{now}); give this one another name"
            )
    return stored


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".") or "schedule"
