"""What a job runs, and the files that foretrain and its attempts share: who may run, what was asked, what
happened.

FOLDER/jobs/JOB/owner                     key of the attempt that may run
FOLDER/jobs/JOB/progress.json             {"done": 40, "total": 100, "saved": 30, "seconds": 8.1, "since": 10}
FOLDER/jobs/JOB/checkpoint                belongs to the job
FOLDER/jobs/JOB/attempts/N/spec.json      what the supervisor runs
FOLDER/jobs/JOB/attempts/N/stop           asks for a checkpoint and the end
FOLDER/jobs/JOB/attempts/N/exit-RANK.json how it ended
"""

from __future__ import annotations

import json
import shlex
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from foretrain.backends.executors._base import Attempt, Executor
from foretrain.backends.supervise import write_whole
from foretrain.errors import InvalidRequest

_LOG_LINES = 3
"""Lines of the end of a log that an error repeats: the exception is there."""
_FEWEST_STEPS = 3
"""The pace of fewer steps is that of the start."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """Steps done of all, and those that are safe in a checkpoint.

    The attempt that wrote it took `seconds` for the steps after `since`; 0 where it did not say.
    """

    done: float = 0.0
    total: float = 1.0
    saved: float = 0.0
    seconds: float = 0.0
    since: float = 0.0

    @property
    def share_left(self) -> float:
        """The share of the work that is left."""
        return max(0.0, 1.0 - self.done / self.total)

    @property
    def share_unsaved(self) -> float:
        """The share of the work that would be left after a crash."""
        return max(0.0, 1.0 - self.saved / self.total)

    @property
    def full_seconds(self) -> float | None:
        """The time of all steps at the rate of this attempt."""
        steps = self.done - self.since
        return self.seconds / steps * self.total if steps >= _FEWEST_STEPS and self.seconds > 0 else None


@dataclass(frozen=True, slots=True)
class Exit:
    """How an attempt ended: the worst exit code of its ranks, and the stamp of the last."""

    code: int
    was_stopped: bool
    reason: str
    stamp: Mapping[str, Any]


def job_folder(folder: Path, job: str) -> Path:
    """The folder of a job; any name makes a file name."""
    return folder / "jobs" / quote(job, safe=" ").replace(".", "%2E")


def attempt_folder(folder: Path, job: str, number: int) -> Path:
    """The folder of an attempt."""
    return job_folder(folder, job) / "attempts" / str(number)


def set_owner(folder: Path, job: str, key: str) -> None:
    """Let one attempt of a job run; any other ends itself. An empty key lets none run."""
    place = job_folder(folder, job)
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / "owner", key)


def prepare(
    folder: Path, attempt: Attempt, command: JobCommand, executor: Executor, grace_seconds: float
) -> None:
    """Write what the supervisor needs, then make the attempt the owner of its job."""
    place = job_folder(folder, attempt.job)
    attempt.folder.mkdir(parents=True, exist_ok=True)
    values = {
        "gpus": attempt.gpus,
        "nodes": len(attempt.hosts),
        "node_type": attempt.node_type,
        "devices": ",".join(map(str, attempt.devices[0])),
        "checkpoint": place / "checkpoint",
        "progress": place / "progress.json",
        "job": attempt.job,
        "attempt": attempt.number,
    }
    variables = {f"FORETRAIN_{name.upper()}": str(value) for name, value in values.items()}
    pairs = list(zip(attempt.hosts, attempt.devices, strict=True))
    cpus = [executor.cpus(host, devices) for host, devices in pairs]
    spec = {
        "key": attempt.key,
        "command": command.filled(values),
        "directory": command.directory,
        "environment": {**variables, **executor.environment(*pairs[0]), **command.environment},
        "cpus": cpus if any(cpus) else None,
        "owner": str(place / "owner"),
        "grace_seconds": grace_seconds,
        "with_parent": executor.follows_parent,
        "done": progress_of(folder, attempt.job).done,
    }
    write_whole(attempt.folder / "spec.json", json.dumps(spec))
    set_owner(folder, attempt.job, attempt.key)


def ask_to_stop(attempt: Attempt) -> None:
    """Ask for a checkpoint and the end of an attempt."""
    (attempt.folder / "stop").touch()


def has_begun(attempt: Attempt) -> bool:
    """Whether a supervisor took the attempt on."""
    return (attempt.folder / "claim-0").exists()


def exit_of(attempt: Attempt) -> Exit | None:
    """How an attempt ended; None while any of its ranks runs and none has failed."""
    exits = [_json(attempt.folder / f"exit-{rank}.json") for rank in range(len(attempt.hosts))]
    ended = [each for each in exits if each]
    failed = [each for each in ended if each["code"] != 0]
    if not failed and len(ended) < len(exits):
        return None
    shown = failed[0] if failed else ended[0]
    was_stopped = any(each["stopped"] for each in ended) or (attempt.folder / "stop").exists()
    return Exit(int(shown["code"]), was_stopped, str(shown["reason"]), shown)


def progress_of(folder: Path, job: str) -> JobProgress:
    """What a job reported last; nothing done where it never did, or wrote something else."""
    content = _json(job_folder(folder, job) / "progress.json")
    try:
        total, done = float(content["total"]), float(content["done"])
        saved = float(content.get("saved", done))
        progress = JobProgress(
            done, total, saved, float(content.get("seconds", 0)), float(content.get("since", 0))
        )
    except (KeyError, TypeError, ValueError):
        return JobProgress()
    return progress if total > 0 and 0 <= saved <= done <= total else JobProgress()


def forget_unsaved(folder: Path, job: str) -> None:
    """After an attempt has ended: work since the last checkpoint counts no longer."""
    path = job_folder(folder, job) / "progress.json"
    progress = progress_of(folder, job)
    if progress.saved < progress.done:
        write_whole(
            path, json.dumps({"done": progress.saved, "total": progress.total, "saved": progress.saved})
        )


def done_before(attempt: Attempt) -> float:
    """The steps that were done when an attempt started."""
    return float(_json(attempt.folder / "spec.json").get("done", 0.0))


def last_output(attempt: Attempt) -> str:
    """The end of what an attempt printed."""
    try:
        text = (attempt.folder / "output-0.log").read_text(errors="replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines()[-_LOG_LINES:] if line.strip())


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none (yet)."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


# ---------------------------------------------------------------- what a job runs


FIELDS = {
    "gpus": "GPUs on each node",
    "nodes": "nodes of the job",
    "node_type": "type of these nodes",
    "devices": "numbers of the GPUs on a node, separated by commas",
    "checkpoint": "path for the job's checkpoints, the same in each attempt",
    "progress": "path of the file in which the job reports its progress",
    "job": "name of the job",
    "attempt": "number of the attempt, from 1",
    "python": "the Python that runs foretrain",
}
"""What may stand in braces in a command."""


@dataclass(frozen=True)
class JobCommand:
    """A command line with fields in braces, where it runs, and variables of its environment.

    `reports` states that it writes its progress; `retries` of failures without progress are allowed.
    """

    template: str
    directory: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    reports: bool = False

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.template)
            named = [name for word in words for _, name, _, _ in string.Formatter().parse(word)]
        except ValueError as error:
            raise InvalidRequest(f"command {self.template!r} cannot be read: {error}") from error
        if not words:
            raise InvalidRequest("the command is empty; write what the job runs")
        unknown = [name for name in named if name is not None and name not in FIELDS]
        if unknown:
            raise InvalidRequest(
                f"command {self.template!r} has the unknown field {{{unknown[0]}}}; there are "
                + ", ".join(f"{{{name}}}" for name in FIELDS)
            )

    def filled(self, values: Mapping[str, object]) -> list[str]:
        """The words of the command; a value never becomes several words."""
        return [word.format_map({"python": sys.executable, **values}) for word in shlex.split(self.template)]


def zoo_training(
    model: str,
    steps: int,
    batch: int | None = None,
    seq_len: int | None = None,
    image_size: int | None = None,
    checkpoint_seconds: float = 10.0,
) -> JobCommand:
    """Train a zoo model on CPUs, one thread for each GPU, with checkpoints and a report of progress."""
    if steps < 1:
        raise InvalidRequest(f"a training of {steps} steps is none; give at least 1")
    sizes = {"batch": batch, "seq-len": seq_len, "image-size": image_size}
    given = "".join(f" --{name} {value}" for name, value in sizes.items() if value is not None)
    return JobCommand(
        "{python} -m foretrain.backends.trainer "
        f"{shlex.quote(model)} --steps {steps}{given} --checkpoint-seconds {checkpoint_seconds:g} "
        "--threads {gpus} --checkpoint {checkpoint} --progress {progress}",
        reports=True,
    )
