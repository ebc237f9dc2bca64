"""Real runs on this machine: several workers in network namespaces, predicted before they are run.

For 2 and for 4 workers: a single worker's step, copies and collectives are timed; every case is predicted and
the predictions are written down with the time of day; only then are the cases run. Needs root and iproute2.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from foretrain.measuring.distributed_trials.crew import Crew, crew
from validation.real_baseline import textbook_seconds
from validation.real_calibration import Calibration, calibrated
from validation.real_cases import CAPS, MICRO_BATCHES, STRATEGIES, WORKERS, RealCase, cases
from validation.real_prediction import predicted_seconds
from validation.real_quiet import DISTURBED_CORES, Quiet
from validation.real_setup import ensure_namespaces
from validation.report import Case, SuiteReport, metrics

FORETRAIN, TEXTBOOK = "foretrain", "step + ring at nominal rate"
PREDICTIONS = Path(__file__).parents[1] / "build" / "validation" / "real_predictions.jsonl"
_LONGEST_STEP_SECONDS = 3.5
_REPEATING_SECONDS = 150.0
"""For so long, with each number of workers, quiet moments are waited for."""


def run(data: Path) -> SuiteReport:
    """Calibrate, predict, then train; for each number of workers."""
    del data  # measured here and now
    ensure_namespaces()
    PREDICTIONS.parent.mkdir(parents=True, exist_ok=True)
    PREDICTIONS.unlink(missing_ok=True)
    found: list[Case] = []
    disturbed: list[float] = []
    left_out: list[str] = []
    for workers in WORKERS:
        with crew(workers) as team:
            quiet = Quiet(team, time.monotonic() + _REPEATING_SECONDS)
            told = _predictions(calibrated(team, quiet), workers)
            left_out += [case.name for case, seconds in told if seconds[FORETRAIN] > _LONGEST_STEP_SECONDS]
            found += _measured(team, quiet, told)
            disturbed += quiet.disturbances
    return _report(found, disturbed, left_out)


def _predictions(known: Calibration, workers: int) -> list[tuple[RealCase, dict[str, float]]]:
    """What is told of every case, written down with the time it was told at."""
    told = [
        (case, {FORETRAIN: predicted_seconds(case, known), TEXTBOOK: textbook_seconds(case, known)})
        for case in cases(workers)
    ]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with PREDICTIONS.open("a", encoding="utf-8") as stream:
        for case, seconds in told:
            stream.write(json.dumps({"predicted_at": now, "case": case.name, "step_seconds": seconds}) + "\n")
    return told


def _measured(team: Crew, quiet: Quiet, told: list[tuple[RealCase, dict[str, float]]]) -> Iterator[Case]:
    for case, seconds in told:
        if seconds[FORETRAIN] > _LONGEST_STEP_SECONDS:
            continue
        team.cap(CAPS[case.cap])
        answers = quiet.do(
            case.strategy,
            model=case.model,
            batch=case.batch,
            micro_batches=MICRO_BATCHES,
            seconds=1.0,
            fewest=3,
            most=30,
        )
        measured = statistics.fmean(answer["seconds"] for answer in answers)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with PREDICTIONS.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"measured_at": now, "case": case.name, "step_seconds": measured}) + "\n")
        yield Case(case.name, case.strategy, measured, seconds)
    team.cap(None)


def _report(found: list[Case], disturbed: list[float], left_out: list[str]) -> SuiteReport:
    groups = {"all": found}
    groups |= {strategy: [case for case in found if case.group == strategy] for strategy in STRATEGIES}
    groups |= {cap: [case for case in found if case.name.endswith(cap)] for cap in CAPS}
    busy = sum(cores > DISTURBED_CORES for cores in disturbed)
    notes = [
        f"Predicted, written to {PREDICTIONS.name} with the time of day, and only then run.",
        "Known beforehand: one worker's step on each core (its own timing, no communication), copies in "
        "memory, and micro-benchmarks of gloo's and rpc's exchanges over the same namespaces.",
        f"Load average {os.getloadavg()[0]:.1f} at the end; others used {statistics.fmean(disturbed):.2f} "
        f"cores on average while something was timed, over {DISTURBED_CORES} in {busy} of {len(disturbed)}.",
        f"Not run, told to take over {_LONGEST_STEP_SECONDS} s a step: {'; '.join(left_out) or 'none'}.",
        *(f"{case.name}: {case.measured:.3f} s, {_error(case):+.1%}" for case in found),
    ]
    if busy > len(disturbed) / 4:
        notes.insert(0, "The machine was busy with other work: run this suite again on a quiet one.")
    by_group = {
        name: {method: metrics(chosen, method) for method in (FORETRAIN, TEXTBOOK)}
        for name, chosen in groups.items()
        if chosen
    }
    return SuiteReport("real", tuple(found), by_group, notes=tuple(notes))


def _error(case: Case) -> float:
    return case.predicted[FORETRAIN] / case.measured - 1
