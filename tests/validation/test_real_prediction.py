"""Steps on shared cores, with calibrations made up so that the answers can be derived by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation.real_baseline import textbook_seconds
from validation.real_calibration import COLLECTIVES, Calibration, Curve, Solo
from validation.real_cases import BATCHES, CAPS, MICRO_BATCHES, RealCase, cases
from validation.real_prediction import call_seconds, graph_of_model, predicted_seconds

from foretrain.prediction.strategies.program import parameter_bytes

FORWARD, BACKWARD, UPDATE = 0.1, 0.2, 0.04
FREE = Curve((1.0, 2.0), (1e-12, 1e-12), (0.0, 0.0))


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETRAIN_HOME", str(tmp_path))


def known(workers: int, cores: int = 2, curve: Curve = FREE) -> Calibration:
    solo = Solo((FORWARD,) * 4, (BACKWARD,) * 4, UPDATE, (1e6,) * 3)
    curves = {(collective, cap): curve for collective in COLLECTIVES for cap in CAPS}
    return Calibration(workers, cores, dict.fromkeys(BATCHES, solo), curves, 1e15, 1e15, 1e15)


def step_seconds(strategy: str, workers: int, curve: Curve = FREE) -> float:
    return predicted_seconds(RealCase(strategy, "mlp", workers, "uncapped"), known(workers, curve=curve))


STEP = 4 * (FORWARD + BACKWARD) + UPDATE


def test_calls_take_what_was_measured_all_together() -> None:
    graph = graph_of_model("transformer")
    assert call_seconds(graph, known(2).solo["transformer"]).sum() == pytest.approx(STEP)


@pytest.mark.parametrize("strategy", ["ddp", "parameter_server"])
def test_with_a_free_network_two_workers_take_a_step_each_and_four_share_two_cores(strategy: str) -> None:
    assert step_seconds(strategy, 2) == pytest.approx(STEP, rel=1e-4)
    update = UPDATE if strategy == "parameter_server" else 0.0  # which the server does once
    assert step_seconds(strategy, 4) == pytest.approx(2 * STEP - update, rel=1e-4)


def test_fsdp_updates_only_a_share() -> None:
    assert step_seconds("fsdp", 2) == pytest.approx(STEP - UPDATE / 2, rel=1e-4)


def test_a_pipeline_of_equal_stages_has_its_bubble() -> None:
    passes = 2 * (FORWARD + BACKWARD)  # two blocks to a stage
    assert step_seconds("pipeline", 2) == pytest.approx((MICRO_BATCHES + 1) * passes + UPDATE / 2)


def test_four_stages_on_two_cores_take_at_least_their_work_and_at_most_one_after_the_other() -> None:
    work = MICRO_BATCHES * 4 * (FORWARD + BACKWARD) + UPDATE
    assert work / 2 < step_seconds("pipeline", 4) < work


def test_an_exchange_that_needs_no_core_hides_behind_backward_except_the_last_bucket() -> None:
    one_second = Curve((1.0, 2.0), (0.1, 0.1), (0.0, 0.0))
    assert step_seconds("ddp", 2, one_second) == pytest.approx(STEP + 0.1, rel=0.01)


def test_an_exchange_that_needs_all_of_a_core_hides_nothing() -> None:
    busy = Curve((1.0, 2.0), (0.1, 0.1), (0.1, 0.1))
    buckets = 3  # 8 MB, 34 MB, 8 MB
    assert step_seconds("ddp", 2, busy) == pytest.approx(STEP + buckets * 0.1, rel=0.01)


def test_fsdp_waits_for_every_gather_and_reduction() -> None:
    idle = Curve((1.0, 2.0), (0.1, 0.1), (0.0, 0.0))
    exchanges = 4 + 4 + 4  # forward, backward, and gradients of each block
    assert step_seconds("fsdp", 2, idle) == pytest.approx(STEP - UPDATE / 2 + exchanges * 0.1, rel=0.01)


def test_curves_go_on_as_they_ended() -> None:
    curve = Curve((1.0, 3.0), (1.0, 2.0), (0.5, 1.0))
    assert curve.at(2.0) == (1.5, 0.5)
    assert curve.at(5.0).seconds == 3.0
    assert curve.at(0.5).seconds == 1.0


def test_the_textbook_sends_a_ring_at_the_nominal_rate() -> None:
    case = RealCase("ddp", "mlp", 4, "1 Gbit")
    sent = 1.5 * parameter_bytes(graph_of_model("mlp"))
    assert textbook_seconds(case, known(4)) == pytest.approx(STEP + sent / 125e6)


def test_every_strategy_meets_every_cap() -> None:
    every = list(cases(2))
    assert len(every) == len(set(every)) == 4 * 3 * 3
