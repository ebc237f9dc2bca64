"""The suite of real runs, with a crew that only pretends: predictions are written down before any run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from validation.real_calibration import COLLECTIVES, Calibration, Curve, Solo
from validation.real_cases import BATCHES, CAPS, WORKERS, cases
from validation.real_setup import ensure_namespaces
from validation.report import Case

from foretrain.errors import MissingData
from foretrain.measuring.distributed_trials import namespaces
from validation import real_suite


class PretendedCrew:
    """Every step takes 10 % longer than a second."""

    def __init__(self, workers: int) -> None:
        self.workers, self.processes = workers, (os.getpid(),)

    def cap(self, bytes_per_second: float | None) -> None:
        assert bytes_per_second in CAPS.values()

    def do(self, trial: str, **settings: Any) -> list[dict[str, float]]:
        return [{"seconds": 1.1}] * self.workers


@contextmanager
def pretended_crew(workers: int) -> Iterator[PretendedCrew]:
    yield PretendedCrew(workers)


def pretended_calibration(team: PretendedCrew, _: object) -> Calibration:
    solo = Solo((0.1,) * 4, (0.14,) * 4, 0.04, (1e6,) * 3)
    free = Curve((1.0, 2.0), (1e-9, 1e-9), (0.0, 0.0))
    curves = {(collective, cap): free for collective in COLLECTIVES for cap in CAPS}
    return Calibration(team.workers, team.workers, dict.fromkeys(BATCHES, solo), curves, 1e15, 1e15, 1e15)


def test_predictions_are_written_before_anything_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path))
    monkeypatch.setattr(real_suite, "PREDICTIONS", tmp_path / "predictions.jsonl")
    monkeypatch.setattr(real_suite, "crew", pretended_crew)
    monkeypatch.setattr(real_suite, "calibrated", pretended_calibration)
    monkeypatch.setattr(real_suite, "ensure_namespaces", lambda: None)
    monkeypatch.setattr(real_suite, "_REPEATING_SECONDS", 0.0)
    report = real_suite.run(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    predicted = {line["case"]: number for number, line in enumerate(lines) if "predicted_at" in line}
    run = {line["case"]: number for number, line in enumerate(lines) if "measured_at" in line}
    assert set(predicted) == {case.name for workers in WORKERS for case in cases(workers)}
    assert set(run) == {case.name for case in report.cases}
    assert all(predicted[name] < run[name] for name in run)
    # the error of 1 s predicted and 1.1 s measured, for the strategies whose step is predicted to take 1 s
    ddp = report.metrics["ddp"][real_suite.FORETRAIN]
    assert ddp.mean == pytest.approx(0.1 / 1.1, abs=0.01)
    assert ddp.coverage is not None


def test_intervals_reach_as_far_as_what_was_seen() -> None:
    seen = [Case("a", "ddp", ratio, {real_suite.FORETRAIN: 1.0}) for ratio in (0.8, 0.9, 1.0, 1.1, 1.3)]
    low, high = real_suite._spread(seen) or (0.0, 0.0)
    assert 0.8 < low < 0.9 < 1.1 < high < 1.3
    assert real_suite._spread([]) is None


def test_a_busy_machine_is_reported() -> None:
    case = Case(
        "ddp, mlp, 2 workers, uncapped", "ddp", 1.1, {real_suite.FORETRAIN: 1.0, real_suite.TEXTBOOK: 2.0}
    )
    busy = real_suite._report([case], [1.5, 1.2, 0.0], [])
    quiet = real_suite._report([case], [0.0, 0.1, 0.0], [])
    assert any("busy" in note for note in busy.notes)
    assert not any("busy" in note for note in quiet.notes)


def test_a_user_other_than_root_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert namespaces.why_not() is not None
    with pytest.raises(MissingData, match=r"root|iproute2"):
        ensure_namespaces()
