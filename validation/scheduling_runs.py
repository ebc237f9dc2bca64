"""Twelve real trainings on each backend under `auto`, forecast against bill.

    python -m validation.scheduling_runs local ray slurm    profile, run, keep results in data/scheduling_runs
    python -m validation.scheduling_runs                    fill in the tables of docs/experiments.md

Each model is first profiled on the same backend for a few seconds, two at a time as later: the time of a step
and of the start. These are all that the schedule knows of the jobs. Prices are those of an Azure NC6 times
100, so that seconds cost cents; clocks are not scaled. Ray and Slurm are started by the project's scripts
(root on Debian).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from foretrain.backends.answer import RealRun
from foretrain.backends.job_files import JobCommand, progress_of, zoo_training
from foretrain.backends.run import run_schedule
from foretrain.scheduling.accounting import JobStatus
from foretrain.scheduling.loop import LoopTurn
from foretrain.scheduling.policies import policies
from foretrain.scheduling.problem import (
    Configuration,
    Fleet,
    NodeType,
    Problem,
    SubmittedJob,
    Switching,
    elastic,
)
from foretrain.store.schedules import open_schedules
from validation.experiments import PAGE, filled

ROOT = Path(__file__).parents[1]
DATA = ROOT / "validation" / "data" / "scheduling_runs"
BACKENDS = ("local", "ray", "slurm")
SCALE = 100.0
NODE = NodeType(name="core", gpu="cpu", gpus=1, usd_per_hour=0.56 * SCALE)
"""The price of Ardagna's NC6, scaled. A node stands for one core."""
ON_A_CORE = Configuration("core", 1)
PROFILE_STEPS = 40
APART_SECONDS = 8.0
WEIGHT_USD_PER_SECOND = 0.005
_INSIDE = "FORETRAIN_INSIDE_CLUSTER"


@dataclass(frozen=True)
class Kind:
    """A model with its sizes."""

    model: str
    batch: int
    image_size: int | None = None

    def training(self, steps: int) -> JobCommand:
        """Its training as a job."""
        return zoo_training(self.model, steps, batch=self.batch, image_size=self.image_size)


KINDS = (
    Kind("mnist-cnn", 64),
    Kind("cifar-resnet20", 32),
    Kind("mnist-resnet18", 8),
    Kind("voice-linear", 100),
    Kind("mobilenet-v2", 4, 64),
    Kind("resnet18", 4, 64),
)
SECONDS = (24.0, 36.0, 30.0, 42.0, 27.0, 33.0, 45.0, 21.0, 39.0, 30.0, 24.0, 36.0)
"""About what each job trains; its steps follow from the profile."""


@dataclass(frozen=True)
class Profile:
    """What was measured of a model: the time of a step, and of starting and ending its training."""

    step_seconds: float
    start_seconds: float


def profile(backend: str, folder: Path) -> dict[Kind, Profile]:
    """Train each model for a few steps, two at a time."""
    jobs = {kind.model: kind for kind in KINDS}
    made = [_job(name, 0.0, 30.0, 0.0, 1000.0) for name in jobs]
    store = str(folder / "profile.sqlite")
    commands = {name: kind.training(PROFILE_STEPS) for name, kind in jobs.items()}
    fifo = policies()["fifo"]
    run_schedule(
        Problem(tuple(made), _fleet()), commands, fifo, backend, name="profile", folder=folder / "profile",
        store=store,
    )  # fmt: skip
    stored = open_schedules(store).schedule("profile")
    assert stored is not None
    taken = {row["job"]: row["ended_seconds"] - row["started_seconds"] for row in stored.attempts}
    profiles = {}
    for name, kind in jobs.items():
        seconds = progress_of(folder / "profile", name).seconds
        profiles[kind] = Profile(seconds / PROFILE_STEPS, taken[name] - seconds)
    return profiles


def problem(profiles: dict[Kind, Profile]) -> tuple[Problem, dict[str, JobCommand]]:
    """Twelve jobs, submitted one after the other; deadlines at 1 to 3 times the time of a job."""
    jobs, commands = [], {}
    for number, seconds in zip(count(), SECONDS, strict=False):
        kind = KINDS[number % len(KINDS)]
        known = profiles[kind]
        steps = max(1, round(seconds / known.step_seconds))
        name = f"{kind.model} {number + 1}"
        factor = 1 + 2 * (number * 5 % 12) / 11
        jobs.append(
            _job(name, number * APART_SECONDS, steps * known.step_seconds, known.start_seconds, factor)
        )
        commands[name] = kind.training(steps)
    return Problem(tuple(jobs), _fleet()), commands


def _job(name: str, submit: float, seconds: float, start: float, factor: float) -> SubmittedJob:
    return SubmittedJob(
        name=name,
        submit_seconds=submit,
        deadline_seconds=submit + factor * (seconds + start),
        weight_usd_per_second=WEIGHT_USD_PER_SECOND,
        seconds={ON_A_CORE: seconds},
        switching=Switching(start_seconds=start, minimum_run_seconds=10.0),
    )


def _fleet() -> Fleet:
    return elastic([NODE], max_nodes=2)


def measure(backend: str) -> None:
    """Profile and run the jobs on one backend, and keep the result."""
    script = {"ray": "ray_for_tests.sh", "slurm": "slurm_for_tests.sh"}.get(backend)
    if script is not None and os.environ.get(_INSIDE) != backend:
        command = [str(ROOT / "scripts" / script), sys.executable, "-m", __spec__.name, backend]
        environment = {**os.environ, _INSIDE: backend, "PYTHON": sys.executable}
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
        return
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profiles = profile(backend, folder)
        made, commands = problem(profiles)
        run = run_schedule(
            made, commands, policies()["auto"], backend, name="run", folder=folder / "run",
            store=str(folder / "run.sqlite"), observe=_show, simulates_first=True,
        )  # fmt: skip
    assert all(each.status is JobStatus.COMPLETED for each in run.outcome.jobs), run.outcome.jobs
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{backend}.json").write_text(_kept(run, profiles, load))


def _show(step: LoopTurn) -> None:
    """One line for each decision, so that a long run is seen to go on."""
    running = ", ".join(name for load in step.decision.loads for name, _ in load.shares)
    sys.stderr.write(f"{step.state.now:7.1f} s  {step.event.kind.value} {step.event.subject}: {running}\n")


def _kept(run: RealRun, profiles: dict[Kind, Profile], load: float) -> str:
    content: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "load_after": round(os.getloadavg()[0], 1),
        "profiles": {
            kind.model: {"step_seconds": each.step_seconds, "start_seconds": each.start_seconds}
            for kind, each in profiles.items()
        },
        **run.to_dict(),
    }
    return json.dumps(content, indent=1) + "\n"


def slots_table(result: dict[str, Any]) -> list[str]:
    """The table of Ardagna 2019: predicted and real cost of each slot, and their sums."""
    lines = ["| slot | event | predicted ($) | real ($) |", "|--:|---|--:|--:|"]
    for number, slot in enumerate(result["slots"], 1):
        event = f"{slot['event']} {slot['subject']}".strip()
        lines.append(f"| {number} | {event} | {slot['forecast_usd']:.2f} | {slot['billed_usd']:.2f} |")
    lines += [
        f"| sum | | {result['forecast_usd']:.2f} | {result['billed_usd']:.2f} |",
        f"| **overall difference** | | | **{abs(result['difference']):.2%}** |",
    ]
    return lines


def overview_table(results: dict[str, dict[str, Any]]) -> list[str]:
    """Forecast and bill on each backend."""
    lines = [
        "| backend | jobs | slots | forecast ($) | bill ($) | difference | simulated beforehand ($) | "
        "difference | load of the machine |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for backend, result in results.items():
        billed, simulated = result["billed_usd"], result["simulated_usd"]
        lines.append(
            f"| {backend} | {len(result['jobs'])} | {len(result['slots'])} | {result['forecast_usd']:.2f} | "
            f"{billed:.2f} | {abs(result['difference']):.2%} | {simulated:.2f} | "
            f"{abs(billed - simulated) / billed:.2%} | {result['load_before']} to {result['load_after']} |"
        )
    return lines


def fill_in() -> None:
    """Write the tables of all results that are kept into the page."""
    results = {
        name: json.loads((DATA / f"{name}.json").read_text())
        for name in BACKENDS
        if (DATA / f"{name}.json").exists()
    }
    tables = {f"schedule {name}": slots_table(each) for name, each in results.items()}
    tables["schedules"] = overview_table(results)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Run the backends that are named, then fill in the page."""
    for backend in arguments:
        measure(backend)
    if not os.environ.get(_INSIDE):
        fill_in()


if __name__ == "__main__":
    main(sys.argv[1:])
