"""Real runs on this machine: several workers in network namespaces, predicted before they are run.

For 2 and for 4 workers: a single worker's step, copies and collectives are timed; every case is predicted and
the predictions are written down with the time of day; only then are the cases run. Needs root and iproute2.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from foretrain.estimates import Quantiles
from foretrain.measuring.distributed_trials.crew import Crew, crew
from validation.real_baseline import textbook_seconds
from validation.real_calibration import Calibration, calibrated
from validation.real_cases import CAPS, MICRO_BATCHES, STRATEGIES, WORKERS, RealCase, cases
from validation.real_prediction import predicted_seconds
from validation.real_quiet import DISTURBED_CORES, Quiet
from validation.real_setup import ensure_namespaces
from validation.report import Case, SuiteReport, metrics, quantile

FORETRAIN, TEXTBOOK = "foretrain", "step + ring at nominal rate"
PREDICTIONS = Path(__file__).parents[1] / "build" / "validation" / "real_predictions.jsonl"
_LONGEST_STEP_SECONDS = 3.0
_REPEATING_SECONDS = 150.0
"""The longest wait for quiet moments, per number of workers."""


def run(data: Path) -> SuiteReport:
    """Calibrate, predict, then train; for each number of workers."""
    del data  # measured here and now
    ensure_namespaces()
    PREDICTIONS.parent.mkdir(parents=True, exist_ok=True)
    PREDICTIONS.unlink(missing_ok=True)
    measured: list[Case] = []
    disturbed: list[float] = []
    left_out: list[str] = []
    for workers in WORKERS:
        with crew(workers) as team:
            quiet = Quiet(team, time.monotonic() + _REPEATING_SECONDS)
            predictions = _predictions(calibrated(team, quiet), workers, _spread(measured))
            left_out += [
                each.case.name for each in predictions if each.seconds[FORETRAIN] > _LONGEST_STEP_SECONDS
            ]
            measured += _measured(team, quiet, predictions)
            disturbed += quiet.disturbances
    return _report(measured, disturbed, left_out)


class _Prediction(NamedTuple):
    """The step time that each method predicts for a case."""

    case: RealCase
    seconds: dict[str, float]
    interval: Quantiles | None


def _spread(measured: Sequence[Case]) -> tuple[float, float] | None:
    """How far measured times lay from predicted ones in the cases run so far: the inner 80 %."""
    if not measured:
        return None
    ratios = [case.measured / case.predicted[FORETRAIN] for case in measured]
    return min(1.0, quantile(ratios, 0.1)), max(1.0, quantile(ratios, 0.9))


def _predictions(known: Calibration, workers: int, spread: tuple[float, float] | None) -> list[_Prediction]:
    """The predictions of all cases, each logged with its time."""
    predictions = []
    for case in cases(workers):
        seconds = predicted_seconds(case, known)
        interval = Quantiles(seconds * spread[0], seconds, seconds * spread[1]) if spread else None
        predictions.append(
            _Prediction(case, {FORETRAIN: seconds, TEXTBOOK: textbook_seconds(case, known)}, interval)
        )
        _write("predicted_at", case, seconds)
    return predictions


def _measured(team: Crew, quiet: Quiet, predictions: list[_Prediction]) -> Iterator[Case]:
    for case, seconds, interval in predictions:
        if seconds[FORETRAIN] > _LONGEST_STEP_SECONDS:
            continue
        team.cap(CAPS[case.cap])
        answers = quiet.do(
            case.strategy,
            model=case.model,
            batch=case.batch,
            micro_batches=MICRO_BATCHES,
            seconds=0.7,
            fewest=3,
            most=30,
        )
        measured = statistics.fmean(answer["seconds"] for answer in answers)
        _write("measured_at", case, measured)
        yield Case(case.name, case.strategy, measured, seconds, interval)
    team.cap(None)


def _write(what: str, case: RealCase, seconds: float) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with PREDICTIONS.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({what: now, "case": case.name, "step_seconds": seconds}) + "\n")


def _report(measured: list[Case], disturbed: list[float], left_out: list[str]) -> SuiteReport:
    groups = {"all": measured}
    groups |= {strategy: [case for case in measured if case.group == strategy] for strategy in STRATEGIES}
    groups |= {cap: [case for case in measured if case.name.endswith(cap)] for cap in CAPS}
    busy = sum(cores > DISTURBED_CORES for cores in disturbed)
    notes = [
        f"Predicted, written to {PREDICTIONS.name} with the time of day, and only then run.",
        "Known beforehand: what a worker's own step takes of a core (timed without communication), copies in "
        "memory, and micro-benchmarks of gloo's and rpc's exchanges over the same namespaces.",
        f"Intervals of {WORKERS[-1]} workers are as wide as those of {WORKERS[0]} turned out to be off.",
        f"Load average {os.getloadavg()[0]:.1f} at the end; others used {statistics.fmean(disturbed):.2f} "
        f"cores on average while something was timed, over {DISTURBED_CORES} in {busy} of {len(disturbed)}.",
        f"Not run, predicted to take over {_LONGEST_STEP_SECONDS} s a step: {'; '.join(left_out) or 'none'}.",
        *(f"{case.name}: {case.measured:.3f} s, {_error(case):+.1%}" for case in measured),
    ]
    if busy > len(disturbed) / 4:
        notes.insert(0, "The machine was busy with other work: run this suite again on a quiet one.")
    by_group = {
        name: {
            FORETRAIN: metrics(chosen, FORETRAIN, with_interval=True),
            TEXTBOOK: metrics(chosen, TEXTBOOK),
        }
        for name, chosen in groups.items()
        if chosen
    }
    return SuiteReport("real", tuple(measured), by_group, notes=tuple(notes))


def _error(case: Case) -> float:
    return case.predicted[FORETRAIN] / case.measured - 1
