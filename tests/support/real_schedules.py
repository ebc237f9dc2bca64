"""Small schedules of `tiny_job` for tests of backends, and what must hold after any of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from foretrain.backends.answer import RealRun
from foretrain.backends.attempts import RunOptions
from foretrain.backends.backend import RealBackend
from foretrain.backends.executors._base import connect
from foretrain.backends.job_files import JobCommand
from foretrain.backends.records import new_head
from foretrain.scheduling.accounting import JobStatus
from foretrain.scheduling.problem import Configuration, NodeType, Problem, SubmittedJob, Switching, elastic
from foretrain.store.schedules import open_schedules

TINY_JOB = Path(__file__).parent / "tiny_job.py"
NODE = NodeType(name="pair", gpu="a100", gpus=2, usd_per_hour=3600)
QUICK = RunOptions(
    every_seconds=30,
    pause_seconds=0.05,
    poll_seconds=0.02,
    check_seconds=0.3,
    grace_seconds=10,
    patience_seconds=60,
)


def problem(
    jobs: int = 4, steps: int = 20, step_seconds: float = 0.05, nodes: int = 2, apart_seconds: float = 0.2
) -> Problem:
    """Jobs on nodes of two GPUs; each runs on one GPU, or on two in the same time."""
    seconds = steps * step_seconds
    made = [
        SubmittedJob(
            name=f"job {number}",
            submit_seconds=number * apart_seconds,
            deadline_seconds=number * apart_seconds + 3 * seconds,
            weight_usd_per_second=0.1,
            seconds={Configuration("pair", 1): seconds, Configuration("pair", 2): seconds},
            switching=Switching(start_seconds=0.3),
        )
        for number in range(jobs)
    ]
    return Problem(tuple(made), elastic([NODE], nodes))


def commands(
    given: Problem, folder: Path, steps: int = 20, step_seconds: float = 0.05, every: int = 5
) -> dict[str, JobCommand]:
    """`tiny_job` for each job, with a trace in `folder`."""
    return {
        job.name: JobCommand(
            f"{{python}} -I -S {shlex.quote(str(TINY_JOB))} {{checkpoint}} {{progress}} "
            f"{shlex.quote(str(trace_of(folder, job.name)))} {steps} {step_seconds} {every}",
            reports=True,
        )
        for job in given.jobs
    }


def trace_of(folder: Path, job: str) -> Path:
    """Where a job notes its steps."""
    return folder / f"{job}.trace"


def check_traces(folder: Path, jobs: Sequence[str], steps: int = 20) -> None:
    """Every job did all its steps; an attempt did nothing after the next had begun, and skipped nothing."""
    for job in jobs:
        lines = [line.split() for line in trace_of(folder, job).read_text().splitlines()]
        attempts = [int(attempt) for attempt, _ in lines]
        assert attempts == sorted(attempts), f"{job}: attempts ran at the same time: {attempts}"
        done = 0
        for _, step in lines:
            assert int(step) <= done + 1, f"{job}: step {step} after step {done}"
            done = int(step)
        assert done == steps, f"{job} ended at step {done}"


def check_all_completed(run: RealRun, jobs: int) -> None:
    """All jobs are complete, each once, and the bill adds up."""
    assert [each.status for each in run.outcome.jobs] == [JobStatus.COMPLETED] * jobs, run.outcome.jobs
    assert len({each.job for each in run.outcome.jobs}) == jobs
    shared = sum(each.execution_usd for each in run.outcome.jobs)
    idle = sum(each.usd for each in run.outcome.history if not each.shares)
    assert abs(shared + idle + run.outcome.unused_usd - run.outcome.execution_usd) < 1e-6
    assert abs(run.billed_usd - run.outcome.execution_usd) < 1e-6


@contextmanager
def real_backend(name: str, given: Problem, folder: Path, steps: int = 20) -> Iterator[RealBackend]:
    """A backend whose jobs take their predicted time in `steps` steps."""
    schedules = open_schedules(str(folder / "store.sqlite"))
    schedules.add(new_head("test", name, "test", folder / "schedule", given))
    stored = schedules.schedule("test")
    assert stored is not None
    seconds = max((job.fastest_seconds for job in given.jobs), default=1.0)
    executor = connect(name, given.fleet)
    try:
        made = commands(given, folder, steps, seconds / steps)
        yield RealBackend(given, made, executor, schedules, stored, QUICK)
    finally:
        executor.close()
