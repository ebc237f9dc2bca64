"""Runs one attempt of a job where it was placed: `python -I -S supervise.py ATTEMPT_FOLDER [RANK]`.

Every backend starts this file, not the job's command: it needs nothing but the standard library and the
folder of the attempt, on a file system that all nodes share. It

- runs an attempt at most once: the first process that creates `claim-RANK` runs it, a second one leaves;
- runs it only while the job's file `owner` names this attempt, and ends it when that changes (fencing): an
  attempt that was given up on a node that seemed dead cannot run beside the next one;
- passes a request to stop (the file `stop`, or SIGTERM) on as SIGTERM, and kills after `grace_seconds`;
- writes `exit-RANK.json` when the command has ended, whole or not at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TURN_SECONDS = 0.1
"""How soon the end of a process is noticed, and so the precision of its run time."""
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of prctl(2)."""
LEFT_ALONE = 75
"""The exit code of a supervisor that found its attempt claimed or fenced."""


def write_whole(path: Path, content: str) -> None:
    """Write a file that survives a crash and is never seen in part."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def stamp() -> dict[str, object]:
    """The time on the clock of this machine as booted now, and on the wall."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"boot": boot, "monotonic": time.monotonic(), "wall": time.time()}


def _owner(path: Path) -> str | None:
    """The attempt that may run; None where the file cannot be read just now."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _claims(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    os.write(handle, json.dumps({"pid": os.getpid(), **stamp()}).encode())
    os.close(handle)
    return True


def _prepare(cpus: list[int] | None) -> None:
    """In the child: end with the supervisor, and use only the given CPUs."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if cpus:
        os.sched_setaffinity(0, cpus)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _watch(process: subprocess.Popen[bytes], folder: Path, spec: dict[str, object]) -> dict[str, object]:
    """Wait for the command; what ended it, if it did not end by itself."""
    asked: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(time.monotonic()))
    parent, reason, is_passed_on = os.getppid(), "", False
    while True:
        try:
            code = process.wait(TURN_SECONDS)
            break
        except subprocess.TimeoutExpired:
            pass
        owner = _owner(Path(str(spec["owner"])))
        if owner is not None and owner != spec["key"]:
            reason = "fenced"
        elif spec["with_parent"] and os.getppid() != parent:
            reason = "orphaned"
        if reason:
            _signal(process, signal.SIGKILL)
        if not asked and (folder / "stop").exists():
            asked.append(time.monotonic())
        if asked and not is_passed_on:
            is_passed_on = True
            _signal(process, signal.SIGTERM)
        if asked and time.monotonic() > asked[0] + float(str(spec["grace_seconds"])):
            _signal(process, signal.SIGKILL)
    _signal(process, signal.SIGKILL)  # what the command left behind
    return {"code": code, "stopped": bool(asked), "reason": reason, **stamp()}


def main(arguments: list[str]) -> int:
    """Run the attempt of a folder."""
    folder, rank = Path(arguments[0]), arguments[1] if len(arguments) > 1 else "0"
    spec = json.loads((folder / "spec.json").read_text())
    if _owner(Path(spec["owner"])) != spec["key"] or not _claims(folder / f"claim-{rank}"):
        return LEFT_ALONE
    cpus = spec["cpus"][int(rank)] if spec["cpus"] else None
    environment = {**os.environ, **spec["environment"], "FORETRAIN_NODE_RANK": rank}
    log = (folder / f"output-{rank}.log").open("ab")
    try:
        process = subprocess.Popen(
            spec["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=spec["directory"],
            start_new_session=True,
            preexec_fn=lambda: _prepare(cpus),  # noqa: PLW1509 - the supervisor has one thread
        )
    except OSError as error:
        log.write(f"{error}\n".encode())
        result = {"code": 127, "stopped": False, "reason": str(error), **stamp()}
    else:
        result = _watch(process, folder, spec)
    write_whole(folder / f"exit-{rank}.json", json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
