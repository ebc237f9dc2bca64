"""The suite on this machine: six models at two sizes, all predicted before any is trained."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.support.calibrated_cpu import CALIBRATION, HERE
from validation.cpu_training import Training

from foretrain.estimates import Quantiles
from validation import cpu_suite


def test_six_models_at_two_batch_sizes() -> None:
    sizes = Counter(training.model for training in set(cpu_suite.TRAININGS))
    assert sorted(sizes) == ["bert-base", "gpt2", "mobilenet-v2", "nmt-small", "resnet18", "vgg11"]
    assert set(sizes.values()) == {2}


def test_everything_is_predicted_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def predictions(*_: object) -> tuple[dict[str, float], Quantiles]:
        done.append("predicted")
        return {cpu_suite.FORETRAIN: 1.1, cpu_suite.ROOFLINE: 0.5}, Quantiles(0.9, 1.1, 1.2)

    def trained(training: Training) -> float:
        done.append("trained")
        assert training.threads == 1
        return 1.0

    monkeypatch.setattr(cpu_suite, "_threads", lambda: 1)
    monkeypatch.setattr(cpu_suite, "_calibrated", lambda _: CALIBRATION)
    monkeypatch.setattr(cpu_suite, "measure_this_machine", lambda **_: HERE)
    monkeypatch.setattr(cpu_suite, "_reference_seconds", lambda _: 1.0)
    monkeypatch.setattr(cpu_suite, "_predictions", predictions)
    monkeypatch.setattr(cpu_suite, "measured_seconds", trained)
    report = cpu_suite.run(Path())
    assert done == ["predicted"] * 12 + ["trained"] * 12
    found = report.metrics["steps"]
    assert found[cpu_suite.FORETRAIN].mean == pytest.approx(0.1)
    assert found[cpu_suite.FORETRAIN].coverage == 1.0
    assert found[cpu_suite.ROOFLINE].mean == pytest.approx(0.5)


def test_a_busy_machine_is_timed_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3})
    for load, threads in ((0.2, 4), (3.0, 1)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, load, load))
        assert cpu_suite._threads() == threads
