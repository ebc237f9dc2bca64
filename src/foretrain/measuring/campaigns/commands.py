"""Trials that run a command, watched as `foretrain measure` watches one."""

from __future__ import annotations

import shutil

from foretrain.errors import MissingData
from foretrain.measuring.campaigns.outcome import Outcome
from foretrain.measuring.campaigns.trials import Trial
from foretrain.measuring.watching.summary import summarise
from foretrain.measuring.watching.watch import WatchRequest, run_of, watch
from foretrain.store.runs import Status

_TIMED_OUT, _KILLED = 124, 137
"""Exit codes of `timeout` where the command ended when asked to, and where it had to be killed."""
_GRACE_SECONDS = 5


def run_command(trial: Trial) -> Outcome:
    """Run the command of a trial within its limits of time and memory."""
    watched = watch(WatchRequest(command=limited(trial), setting=trial.setting, output_to_stderr=True))
    watched.journal.unlink(missing_ok=True)
    run = run_of(watched.gathered)
    status, message = run.status, run.message
    if run.exit_code in (_TIMED_OUT, _KILLED) and run.seconds >= trial.timeout:
        status, message = Status.TIMED_OUT, f"stopped after {trial.timeout:g} s"
    return Outcome(
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


def limited(trial: Trial) -> tuple[str, ...]:
    """The command under `timeout` (coreutils) and, with a limit of memory, `prlimit` (util-linux)."""
    command = trial.words
    if trial.memory is not None:
        command = (_tool("prlimit"), f"--data={int(trial.memory)}", *command)
    return (_tool("timeout"), f"--kill-after={_GRACE_SECONDS}", f"{trial.timeout:g}", *command)


def _tool(name: str) -> str:
    if shutil.which(name) is None:
        raise MissingData(f"trials of commands need {name}, which is not installed here")
    return name
