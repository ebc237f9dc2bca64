"""Trials on this machine: workers in network namespaces, kept alive from trial to trial.

A crew of workers is started for each number of workers that a campaign asks for, and serves all its trials:
a trial then costs a model and its steps, not a start of torch. A crew in which a worker ended or hangs is
replaced. A trial that has a command runs it instead, watched as `foretrain measure` watches one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from foretrain.errors import MissingData
from foretrain.measuring.campaigns.campaign import network_bytes_per_second
from foretrain.measuring.campaigns.trials import Trial, TrialOutcome, TrialRunner, worker_steps
from foretrain.measuring.distributed_trials.crew import Crew, WorkerFailed, crew
from foretrain.measuring.distributed_trials.member import TRAIN
from foretrain.measuring.stopwatch import OtherLoad
from foretrain.measuring.this_machine import this_environment
from foretrain.measuring.watching.report import summarise
from foretrain.measuring.watching.samplers import Sampler
from foretrain.measuring.watching.watch import WatchRequest, run_of, watch
from foretrain.store.runs import NODE, OTHER_PROCESSES, Environment, Resource, ResourceSeries, Status

INTERVAL_SECONDS = 0.025
_SIZES = ("model", "batch", "seq_len", "image_size", "precision", "optimizer")
_OPTIMIZER = "adamw"
"""What `foretrain.predict` assumes where no optimizer is given."""
_TIMED_OUT, _KILLED = 124, 137
"""Exit codes of `timeout` where the command ended when asked to, and where it had to be killed."""
_GRACE_SECONDS = 5
"""From the signal that asks a trial to end to the one that ends it."""

CommandRunner = Callable[[Trial], TrialOutcome]


class LocalRunner(TrialRunner):
    """Runs trials on this machine, one at a time; `run_command` runs those that have a command."""

    def __init__(self, run_command: CommandRunner, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._run_command = run_command
        self._interval = interval_seconds
        self._crews: dict[int, tuple[Crew, ExitStack]] = {}
        self._environment: Environment | None = None

    def close(self, *, failed: bool) -> None:
        """Send the crews home."""
        for workers in list(self._crews):
            self._dismiss(workers, failed=failed)

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the processes of all crews."""
        return tuple(process for team, _ in self._crews.values() for process in team.member_processes)

    def run(self, trial: Trial) -> TrialOutcome:
        """Train the model of the trial, or run its command."""
        if trial.command is not None:
            return self._run_command(trial)
        team = self._crew(trial.workers)
        team.cap(network_bytes_per_second(trial.network))
        return self._trained(team, trial)

    def _trained(self, team: Crew, trial: Trial) -> TrialOutcome:
        started_at, origin = datetime.now(UTC), time.monotonic()
        watched = team.member_processes if trial.servers is not None else team.member_processes[:-1]
        answers: list[dict[str, Any]] = []
        status, message, usable = Status.COMPLETED, "", True
        others = OtherLoad(team.processes)
        with Sampler(watched, self._interval, origin=origin) as sampler:
            try:
                answers = team.do(TRAIN, within=trial.timeout, **task_of(trial))
            except WorkerFailed as failure:
                status, message = Status(failure.kind), str(failure)
                usable = failure.is_crew_usable
        seconds = time.monotonic() - origin
        if not usable:
            self._dismiss(trial.workers, failed=True)
        return TrialOutcome(
            status=status,
            started_at=started_at,
            seconds=seconds,
            environment=replace(self._this_environment(), nodes=trial.workers, devices_per_node=1),
            steps=worker_steps(answers, origin),
            series=(
                *(_named(series, trial.workers) for series in sampler.series()),
                _other_load(seconds, others.cores),
            ),
            message=message,
        )

    def _this_environment(self) -> Environment:
        if self._environment is None:
            self._environment = this_environment()
        return self._environment

    def _crew(self, workers: int) -> Crew:
        if workers not in self._crews:
            stack = ExitStack()
            self._crews[workers] = stack.enter_context(crew(workers)), stack
        return self._crews[workers][0]

    def _dismiss(self, workers: int, *, failed: bool) -> None:
        """End a crew; that of a failed trial may hang and is killed at once."""
        team, stack = self._crews.pop(workers)
        if failed:
            team.kill()
        stack.close()


def task_of(trial: Trial) -> dict[str, Any]:
    """The trial as a task of `distributed_trials`."""
    task = {name: trial.point[name] for name in _SIZES if name in trial.point}
    length = {"steps": trial.steps} if trial.steps else {"seconds": trial.seconds}
    return {
        "optimizer": _OPTIMIZER, **task, **length,
        "strategy": trial.strategy, "memory_bytes": trial.memory,
    }  # fmt: skip


def _other_load(seconds: float, cores: float) -> ResourceSeries:
    """Cores that other processes of the machine kept busy during the trial: one sample."""
    return ResourceSeries(
        resource=Resource.CPU,
        worker=NODE,
        seconds=np.array([seconds]),
        values=np.array([cores]),
        label=OTHER_PROCESSES,
    )


def _named(series: ResourceSeries, workers: int) -> ResourceSeries:
    """The parameter server is the worker after the last, and labelled."""
    return replace(series, label="server") if series.worker == workers else series


def run_command(trial: Trial) -> TrialOutcome:
    """Run the command of a trial within its limits of time and memory."""
    watched = watch(WatchRequest(command=limit_command(trial), setting=trial.setting, output_to_stderr=True))
    watched.journal.unlink(missing_ok=True)
    run = run_of(watched.gathered)
    status, message = run.status, run.message
    if run.exit_code in (_TIMED_OUT, _KILLED) and run.seconds >= trial.timeout:
        status, message = Status.TIMED_OUT, f"stopped after {trial.timeout:g} s"
    return TrialOutcome(
        status=status,
        started_at=run.started_at,
        seconds=run.seconds,
        environment=run.environment,
        steps=run.steps,
        series=run.series,
        message=message,
        exit_code=run.exit_code,
        summary=summarise(run.steps, watched.gathered.source),
    )


def limit_command(trial: Trial) -> tuple[str, ...]:
    """The command under `timeout` (coreutils) and, with a limit of memory, `prlimit` (util-linux)."""
    command = trial.words
    if trial.memory is not None:
        command = (_tool("prlimit"), f"--data={int(trial.memory)}", *command)
    return (_tool("timeout"), f"--kill-after={_GRACE_SECONDS}", f"{trial.timeout:g}", *command)


def _tool(name: str) -> str:
    if shutil.which(name) is None:
        raise MissingData(f"trials of commands need {name}, which is not installed here")
    return name
