"""Consumption of predicted steps: bytes and computing are conserved, and bursts follow the strategy."""

from dataclasses import replace

import pytest

from foretrain.answers import Infeasible
from foretrain.facts.hardware import Cluster, cluster, hardware
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import pace_of
from foretrain.prediction.resources.bursts import Pattern
from foretrain.prediction.resources.consumption import (
    METRICS,
    TIMELINE,
    Consumption,
    timeline_consumption,
    words,
)
from foretrain.prediction.resources.worker_cycle import worker_cycle
from foretrain.prediction.scenario import Evaluation, Scenario
from foretrain.prediction.strategies.program import gradients
from foretrain.store.runs import Resource
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of


def scenario(strategy: str, on: str = "t4:1x2", model: str = "cifar-resnet20", batch: int = 64) -> Scenario:
    return Scenario(
        workload_of(WorkloadRequest(model, batch=batch)),
        cluster(on),
        Parallelism(strategy=strategy, network="ethernet-1g" if "x" in on else None),
        advice=False,
    )


def pace(asked: Scenario) -> Evaluation:
    found = pace_of(asked)
    assert not isinstance(found, Infeasible)
    return found


def answer(asked: Scenario) -> Consumption:
    return timeline_consumption(asked, pace(asked), "")


@pytest.mark.parametrize(
    ("strategy", "passes"), [("ddp", 1.0), ("ps-sync", 1.0), ("ps-async", 1.0), ("fsdp", 1.5)]
)
def test_a_cycle_sends_the_bytes_of_its_exchanges(strategy: str, passes: float) -> None:
    """Of two workers each sends its gradients once; FSDP gathers twice and scatters once, half each."""
    evaluated = pace(scenario(strategy))
    cycle = worker_cycle(evaluated)
    size = sum(gradient.bytes for gradient in gradients(evaluated.graph))
    for resource in (Resource.TRANSMIT, Resource.RECEIVE):
        moved = cycle.signals[resource].mean * cycle.period_seconds
        assert moved == pytest.approx(passes * size, rel=0.02), resource


@pytest.mark.parametrize("strategy", ["ddp", "ps-sync", "fsdp", "pp=2"])
def test_computing_is_conserved(strategy: str) -> None:
    evaluated = pace(scenario(strategy))
    cycle = worker_cycle(evaluated)
    busy = cycle.signals[Resource.GPU].mean * cycle.period_seconds
    assert cycle.period_seconds == pytest.approx(evaluated.seconds)
    assert busy == pytest.approx(evaluated.step.run.computing_seconds, rel=0.1)


def test_asynchronous_workers_have_a_cycle_of_their_own() -> None:
    evaluated = pace(scenario("ps-async"))
    assert worker_cycle(evaluated).period_seconds == pytest.approx(2 * evaluated.seconds)


def test_a_worker_pushes_before_it_pulls() -> None:
    signals = worker_cycle(pace(scenario("ps-sync"))).signals
    sent, received = signals[Resource.TRANSMIT], signals[Resource.RECEIVE]
    last_sent = sent.edges[1:][sent.levels > 0].max()
    assert last_sent == pytest.approx(received.edges[:-1][received.levels > 0].min())


def test_one_gpu_is_busy_and_its_network_idle() -> None:
    alone = answer(scenario("ddp", on="t4"))
    assert alone.of("gpu").pattern is Pattern.BUSY
    assert alone.of("transmit").pattern is Pattern.IDLE
    assert alone.of("gpu").burst_duration.p50 == 0.0, "a burst without gaps lasts as long as one looks"
    assert alone.method == TIMELINE


def test_the_answer_has_three_metrics_of_four_resources() -> None:
    plain = answer(scenario("ps-sync")).to_dict()
    assert list(plain["resources"]) == ["gpu", "gpu_memory", "transmit", "receive"]
    for each in plain["resources"].values():
        assert {*METRICS, "pattern", "unit", "idle_amount"} == set(each)
    transmit = plain["resources"]["transmit"]
    assert transmit["burst_amount"]["p10"] < transmit["burst_amount"]["p50"] < transmit["burst_amount"]["p90"]
    assert plain["resources"]["gpu"]["burst_amount"]["p10"] is None, "no interval is known"


def test_bursts_and_gaps_make_a_cycle() -> None:
    found = answer(scenario("ps-sync"))
    for name in ("gpu", "transmit", "receive"):
        each = found.of(name)
        assert each.burst_duration.p50 + each.idle_duration.p50 == pytest.approx(
            found.cycle_seconds, rel=0.05
        )
        assert "for" in words(each)


def test_a_slower_network_has_lower_and_longer_bursts() -> None:
    slow, fast = (
        timeline_consumption(asked, pace(asked), "").of("transmit")
        for asked in (
            scenario("ps-sync"),
            Scenario(
                workload_of(WorkloadRequest("cifar-resnet20", batch=64)),
                cluster("t4:1x2"),
                Parallelism(strategy="ps-sync", network="ethernet-10g"),
                advice=False,
            ),
        )
    )
    assert slow.burst_amount.p50 < fast.burst_amount.p50
    assert slow.burst_duration.p50 > fast.burst_duration.p50


@pytest.mark.parametrize(("other", "precision"), [("gtx1080ti", "fp32"), ("v100-sxm2-16gb", "fp16")])
def test_unequal_nodes_train_in_their_common_precision_as_in_a_prediction(other: str, precision: str) -> None:
    unequal = Cluster(f"t4 and {other}", (hardware("t4:1"), hardware(f"{other}:1")))
    asked = replace(scenario("ddp"), cluster=unequal)
    assert pace(asked).context.workload.options.precision == precision
