"""The suite of learning on made-up runs, where the right answer is known."""

from __future__ import annotations

import statistics

import pytest
from validation.learn_layers import OWN, profile_cases
from validation.learn_suite import (
    GRAY,
    PUBLISHED,
    _cell_metrics,
    _cells,
    _deeper_lambda,
    _gpu_count,
    _published_metrics,
    _unseen_devices,
    published_cells,
)
from validation.learn_tables import LambdaRow
from validation.report import Case

DEVICES = ("t4", "rtx2080ti", "v100-sxm2-16gb", "rtx3090")


def row(model: str, device: str, gpus: int = 1, batch: int = 32) -> LambdaRow:
    """A network that takes 1.5 times as long as predicted, and 4 % more for every doubling of the GPUs."""
    predicted = {"resnet50": 0.1, "resnet152": 0.24}[model] * batch / 32
    seconds = 1.5 * predicted * (1 + 0.04 * {1: 0, 2: 1, 4: 2, 8: 3}[gpus])
    return LambdaRow("host", device, False, "fp32", model, gpus, batch, seconds, predicted)


def test_the_published_cells_have_the_medians_of_its_tables() -> None:
    medians = {name: statistics.median(cells) for name, cells in published_cells().items()}
    assert medians["batch-size"] == pytest.approx(0.066, abs=0.001)
    assert medians["gpu-count"] == pytest.approx(0.122)
    assert medians["compute-power"] == pytest.approx(0.101)
    assert _published_metrics("batch-size")[PUBLISHED].cases == 94
    assert _published_metrics("colour") == {}


def test_a_cell_is_the_mean_of_its_rows() -> None:
    cases = [
        Case("a", "net on t4", 1.0, {GRAY: 1.1}),
        Case("b", "net on t4", 1.0, {GRAY: 0.7}),
        Case("c", "net on k80", 1.0, {GRAY: 1.0}),
    ]
    assert _cells(cases, GRAY) == {"net on t4": pytest.approx(0.2), "net on k80": pytest.approx(0.0)}
    assert _cell_metrics(cases)[GRAY].median == pytest.approx(0.1)


def test_more_gpus_follow_from_fewer() -> None:
    rows = [row(model, "t4", gpus) for model in ("resnet50", "resnet152") for gpus in (1, 2, 4, 8)]
    cases = _gpu_count(rows)
    assert [case.group for case in cases] == ["resnet152 on t4", "resnet50 on t4"]
    for case in cases:
        assert case.predicted[GRAY] == pytest.approx(case.measured, rel=0.03)


def test_a_device_never_timed_follows_from_its_prediction() -> None:
    rows = [
        row(m, device, batch=b) for m in ("resnet50", "resnet152") for device in DEVICES for b in (32, 64)
    ]
    cases = _unseen_devices(rows)
    assert len(cases) == len(rows)
    for case in cases:
        assert case.predicted[GRAY] == pytest.approx(case.measured, rel=0.03)


def test_a_deeper_network_follows_from_the_shallower_one() -> None:
    (case,) = _deeper_lambda([row("resnet50", "t4"), row("resnet152", "t4")])
    assert case.predicted[GRAY] == pytest.approx(case.measured)


def test_lines_of_a_network_sum_to_its_own_measured_step() -> None:
    own = [abs(case.predicted[OWN] / case.measured - 1) for case in profile_cases() if OWN in case.predicted]
    assert len(own) == 5
    assert max(own) < 0.05
