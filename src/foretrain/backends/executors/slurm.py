"""A Slurm cluster: an attempt is a batch job on chosen nodes with GRES, named by its key.

Needs sbatch, squeue, scancel and sinfo, and a folder that all nodes share. Jobs are never requeued by Slurm:
foretrain decides where they go next. A node that is down, failing or drained counts as lost, and so does one
that has not answered for a while: Slurm's own timeout is five minutes by default, and a node whose last job
seems to complete may never be declared down.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from typing import ClassVar

from foretrain.backends.executors._base import Attempt, Executor, Handle, Host
from foretrain.errors import BackendFailed, InvalidRequest, MissingData
from foretrain.scheduling.problem import Fleet

_TIMEOUT_SECONDS = 60
"""A command of Slurm that takes longer counts as failed."""
_LIVE = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "STOPPED", "SIGNALING"}
)
_WORKING = ("idle", "mixed", "allocated", "completing", "planned", "reserved", "draining")
"""States of nodes whose jobs go on; `*` behind a state says that the node does not answer at present."""
_UNKNOWN_JOB = "Invalid job id"


class SlurmExecutor(Executor):
    """Batch jobs of Slurm."""

    name = "slurm"
    summary = "Batch jobs of a Slurm cluster, with GRES."
    follows_parent = True
    options: ClassVar[Mapping[str, str]] = {
        "partition": "partition to submit to (default: that of the cluster)",
        "account": "account to charge",
        "gres": "name of the GPU resource (default gpu; gpu:a100 for one type)",
        "cpus_per_gpu": "CPUs for each GPU (default: as Slurm is configured)",
        "unresponsive_seconds": "time after which a node that does not answer counts as lost (default 30)",
    }

    def __init__(self, fleet: Fleet, options: Mapping[str, str]) -> None:
        del fleet
        for tool in ("sbatch", "squeue", "scancel", "sinfo"):
            if shutil.which(tool) is None:
                raise MissingData(
                    f"{tool} of Slurm is not on the PATH; run foretrain on a node of the cluster"
                )
        self._options = options
        self._gres = options.get("gres", "gpu")
        self._patience = _seconds(options.get("unresponsive_seconds", "30"))
        self._silent_since: dict[str, float] = {}

    def hosts(self) -> tuple[Host, ...]:
        """The nodes of the partition with their GPUs."""
        partition = ["--partition", self._options["partition"]] if "partition" in self._options else []
        lines = _run("sinfo", "--Node", "--noheader", "--format=%N|%T|%G", *partition).splitlines()
        hosts = {}
        for line in lines:
            name, state, gres = line.split("|")
            is_working = state.rstrip("*~#!%$@^-").lower() in _WORKING
            hosts[name] = Host(name, _gpus(gres), is_working and self._answers(name, "*" in state))
        return tuple(hosts[name] for name in sorted(hosts))

    def _answers(self, host: str, is_silent: bool) -> bool:
        """Whether a node answered lately."""
        if not is_silent:
            self._silent_since.pop(host, None)
            return True
        return time.monotonic() < self._silent_since.setdefault(host, time.monotonic()) + self._patience

    def start(self, attempt: Attempt) -> Handle:
        """Submit a batch job for exactly these nodes."""
        script = attempt.folder / "job.sh"
        script.write_text(_script(attempt))
        settings = {
            "job-name": attempt.key,
            "nodelist": ",".join(attempt.hosts),
            "nodes": len(attempt.hosts),
            "ntasks-per-node": 1,
            "gres": f"{self._gres}:{attempt.gpus}",
            "cpus-per-gpu": self._options.get("cpus_per_gpu"),
            "partition": self._options.get("partition"),
            "account": self._options.get("account"),
            "output": attempt.folder / "slurm.log",
            "export": "ALL",
        }
        given = [f"--{name}={value}" for name, value in settings.items() if value is not None]
        printed = _run("sbatch", "--parsable", "--no-requeue", *given, str(script))
        return {"job": printed.strip().partition(";")[0]}

    def find(self, attempt: Attempt) -> Handle | None:
        """By the name of the job."""
        jobs = _run("squeue", "--noheader", "--states=all", f"--name={attempt.key}", "--format=%A").split()
        return {"job": jobs[0]} if jobs else None

    def alive(self, handles: Mapping[str, Handle]) -> frozenset[str]:
        """Jobs that wait, run or complete."""
        if not handles:
            return frozenset()
        states = dict(
            line.split("|")
            for line in _run("squeue", "--noheader", "--states=all", "--format=%A|%T", "--me").splitlines()
        )
        return frozenset(key for key, handle in handles.items() if states.get(handle["job"]) in _LIVE)

    def kill(self, key: str, handle: Handle) -> None:
        """Cancel the job; one that has ended is left alone."""
        del key
        _run("scancel", "--quiet", handle["job"])


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidRequest(f"`unresponsive_seconds` is {text!r}; give a number of seconds") from error


def _script(attempt: Attempt) -> str:
    """The supervisor of each node."""
    if len(attempt.hosts) == 1:
        return f"#!/bin/sh\nexec {shlex.join(attempt.command())}\n"
    one = f'{shlex.join(attempt.command()[:-1])} "$SLURM_PROCID"'
    return f"#!/bin/sh\nexec srun --kill-on-bad-exit=0 sh -c {shlex.quote(one)}\n"


def _gpus(gres: str) -> int:
    """GPUs of a node, from `gpu:a100:2(S:0-1),gpu:v100:1,shard:8`."""
    count = 0
    for part in gres.split(","):
        fields = part.partition("(")[0].split(":")
        if fields[0] == "gpu" and fields[-1].isdigit():
            count += int(fields[-1])
    return count


def _run(*command: str) -> str:
    """What a tool of Slurm prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendFailed(f"{command[0]} failed: {error}") from error
    if done.returncode != 0 and _UNKNOWN_JOB not in done.stderr:
        raise BackendFailed(f"{command[0]} failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
