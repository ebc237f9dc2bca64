"""Faults in the middle of a schedule, each followed by the check that no job was lost or doubled.

Used by tests once each, and by `scripts/fault_drill.py` many times. `wait` is polled: real processes take
real time.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.real_schedules import check_traces, trace_of

from foretrain.backends.job_files import attempt_folder
from foretrain.store.schedules import open_schedules

JOBS, STEPS = 4, 20
ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_SECONDS = 120.0
_SLOWLY = ("--step-seconds", "0.2")
"""So that a job still runs when its node dies, also on a busy machine."""


def start_driver(folder: Path, backend: str = "local", *options: str) -> subprocess.Popen[bytes]:
    """A foretrain of its own that runs the schedule."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "tests.support.schedule_driver",
        str(folder.resolve()),
        "--backend",
        backend,
    ]
    with (folder / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )


def finish(folder: Path, backend: str = "local") -> dict[str, Any]:
    """Run the schedule to its end, and check that every job is complete, once, and did each step once."""
    driver = start_driver(folder, backend)
    return finished(driver, folder)


def finished(driver: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    """Wait for a driver to end well, and check what it did."""
    try:
        code = driver.wait(_PATIENCE_SECONDS)
    finally:
        driver.kill()
    assert code == 0, (folder / "driver.log").read_text()[-3000:]
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    statuses = {each["job"]: each["status"] for each in result["jobs"]}
    assert statuses == {f"job {number}": "completed" for number in range(JOBS)}, result["jobs"]
    assert len(result["jobs"]) == JOBS
    check_traces(folder, list(statuses), STEPS)
    return result


def wait(condition: Callable[[], object], what: str) -> None:
    """Until something real has happened."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def steps_done(folder: Path, job: str) -> int:
    """Steps a job has noted."""
    trace = trace_of(folder, job)
    return len(trace.read_text().splitlines()) if trace.exists() else 0


def claim(folder: Path, job: str, number: int = 1) -> Path:
    """The file in which a supervisor noted its process id."""
    return attempt_folder(folder / "schedule", job, number) / "claim-0"


def kill(pid: int) -> None:
    """As `kill -9` does."""
    os.kill(pid, signal.SIGKILL)


def kill_foretrain(folder: Path, backend: str = "local") -> dict[str, Any]:
    """Kill foretrain while jobs run; the next one goes on with them."""
    driver = start_driver(folder, backend)
    wait(lambda: steps_done(folder, "job 1") >= 3, "a running job")
    driver.kill()
    driver.wait()
    return finish(folder, backend)


def kill_job(folder: Path, backend: str = "local") -> dict[str, Any]:
    """Kill the command of a job after its first checkpoint."""
    driver = start_driver(folder, backend)
    wait(lambda: steps_done(folder, "job 0") >= 7, "a running job")
    supervisor = int(json.loads(claim(folder, "job 0").read_text())["pid"])
    (command,) = _children(supervisor)
    kill(command)
    result = finished(driver, folder)
    assert result["jobs"][0]["starts"] == 2
    return result


def kill_supervisor(folder: Path, backend: str = "local") -> dict[str, Any]:
    """Kill the supervisor of a job, and its command with it."""
    driver = start_driver(folder, backend)
    wait(lambda: steps_done(folder, "job 0") >= 7, "a running job")
    kill(int(json.loads(claim(folder, "job 0").read_text())["pid"]))
    result = finished(driver, folder)
    assert result["jobs"][0]["starts"] == 2
    return result


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_slurm_node(folder: Path, state: Path, *, with_steps: bool = True) -> dict[str, Any]:
    """Kill slurmd of the node that runs job 0 (and its steps), then start it again."""
    driver = start_driver(folder, "slurm", *_SLOWLY)
    wait(lambda: steps_done(folder, "job 0") >= 7, "a running job")
    supervisor = int(json.loads(claim(folder, "job 0").read_text())["pid"])
    node = _slurm_node(supervisor)
    kill(int((state / f"{node}.pid").read_text()))
    if with_steps:
        _kill_with_parent(supervisor)
    result = finished(driver, folder)
    assert result["jobs"][0]["starts"] == 2 or not with_steps  # a step may end before its node is given up
    program = shutil.which("slurmd")
    assert program is not None
    subprocess.run([program, "-N", node, "-d", str(Path(program).with_name("slurmstepd"))], check=True)
    subprocess.run(["scontrol", "update", f"nodename={node}", "state=resume"], check=False)
    wait(lambda: _is_idle(node), f"{node} to return")
    return result


def kill_ray_node(folder: Path, state: Path) -> dict[str, Any]:
    """Kill the raylet of the node that runs job 0 and the job's actor, then start that node again."""
    driver = start_driver(folder, "ray", *_SLOWLY)
    wait(lambda: steps_done(folder, "job 0") >= 7, "a running job")
    rows = open_schedules(str(folder / "store.sqlite")).schedule("driven")
    assert rows is not None
    (host,) = next(row for row in rows.attempts if row["job"] == "job 0")["hosts"]
    number = host.rpartition("-")[2]
    kill(int((state / f"node-{number}.pid").read_text()))
    _kill_with_parent(int(json.loads(claim(folder, "job 0").read_text())["pid"]))
    (state / f"start-{number}").touch()
    result = finished(driver, folder)
    assert result["jobs"][0]["starts"] >= 2
    return result


def _slurm_node(pid: int) -> str:
    """The node of a batch job, by a process of it."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    variables = dict(entry.decode().partition("=")[::2] for entry in entries if entry)
    return variables["SLURMD_NODENAME"]


def _kill_with_parent(supervisor: int) -> None:
    """Kill a supervisor and the process above it (slurmstepd, an actor), as when a node loses power."""
    status = Path(f"/proc/{supervisor}/status").read_text()
    parent = int(status.partition("PPid:")[2].split()[0])
    kill(parent)
    kill(supervisor)


def _is_idle(node: str) -> bool:
    shown = subprocess.run(
        ["sinfo", "--noheader", f"--nodes={node}", "--format=%T"], capture_output=True, text=True, check=False
    )
    return shown.stdout.strip() == "idle"
