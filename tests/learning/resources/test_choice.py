"""Which method answers: the timeline on GPUs, on CPU workers the one that validated better."""

import pytest
from validation.campaign_suite import machine_of_the_campaign

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import cluster
from foretrain.learning.resources.choice import consumption
from foretrain.prediction.options import Parallelism
from foretrain.prediction.resources.consumption import INSPECTOR, TIMELINE, Consumption
from foretrain.prediction.scenario import Scenario
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of


def asked(on: str, strategy: str = "ddp", network: str | None = None, method: str = "auto") -> Consumption:
    scenario = Scenario(
        workload_of(WorkloadRequest("mnist-cnn", batch=32)),
        cluster(on),
        Parallelism(strategy=strategy, network=network),
        advice=False,
    )
    answer = consumption(scenario, method)
    assert not isinstance(answer, Infeasible)
    return answer


def test_gpus_are_predicted_by_the_timeline() -> None:
    answer = asked("t4")
    assert answer.method == TIMELINE
    assert "CPU workers" in answer.reason
    with pytest.raises(InvalidRequest, match="CPU workers only"):
        asked("t4", method="inspector")
    with pytest.raises(InvalidRequest, match="not one of auto, timeline, inspector"):
        asked("t4", method="guess")


def test_cpu_workers_are_predicted_by_the_better_method() -> None:
    with machine_of_the_campaign():
        answer = asked("here:1x2", "ps-sync", "100Mbit/s")
        inspected = asked("here:1x2", "ps-sync", "100Mbit/s", INSPECTOR)
        timeline = asked("here:1x2", "ps-sync", "100Mbit/s", TIMELINE)
        many = asked("here:1x8", "ps-sync", "100Mbit/s")
    assert answer.method in (INSPECTOR, TIMELINE)
    assert "mean error on models left out" in answer.reason
    assert [each.name for each in inspected.resources] == ["cpu", "memory", "transmit", "receive"]
    assert inspected.method == INSPECTOR
    memory = inspected.of("memory").burst_amount
    assert memory.p10 is not None
    assert memory.p90 is not None
    assert memory.p10 <= memory.p50 <= memory.p90
    assert timeline.method == TIMELINE
    assert many.method == TIMELINE
    assert "at most 3 workers" in many.reason


def test_one_worker_has_no_network() -> None:
    with machine_of_the_campaign():
        alone = asked("here", method=INSPECTOR)
    assert alone.of("transmit").pattern.value == "I"
