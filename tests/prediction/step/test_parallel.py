"""Parallel steps: what holds for every strategy, and what is exchanged."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.support.hand_made_steps import environment, gpt2, graph, parallel_step_on

from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives.network import with_factor
from foretrain.prediction.cost_models import call_times, step_estimate
from foretrain.prediction.step.parallel import (
    BUBBLE,
    EXPOSED,
    OVERLAPPED,
    predict_step,
    with_launched_exchanges,
)
from foretrain.prediction.strategies.program import Axis, parameter_bytes
from foretrain.prediction.strategies.strategy import Layout, divide_step, layout_of
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.graph import Phase

ON = "a100-pcie-40gb:4"
STRATEGIES = [
    "ddp", "dp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "zero=3,shard=2", "dp=4,compress=bf16",
    "dp=4,overlap=no", "tp=4", "tp=2,sp,dp=2", "cp=4", "cp=2,dp=2,zero=1", "pp=4", "pp=2,dp=2",
    "pp=2,dp=2,zero=1", "pp=2,dp=2,zero=2", "pp=2,dp=2,zero=3", "tp=2,pp=2", "pp=2,chunks=2,dp=2",
    "pp=4,schedule=gpipe",
]  # fmt: skip


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_parts_sum_to_the_step_and_exposed_is_part_of_all(strategy: str, micro_batches: int) -> None:
    if "chunks" in strategy and micro_batches == 1:
        micro_batches = 2  # one for each stage
    step = parallel_step_on(gpt2(), strategy, ON, micro_batches)
    run = step.run
    assert step.seconds == pytest.approx(run.seconds)
    spent = run.computing_seconds + run.exposed_seconds + run.bubble_seconds + run.waiting_seconds
    assert spent == pytest.approx(run.seconds)
    assert sum(run.phases.values()) == pytest.approx(run.computing_seconds + run.waiting_seconds)
    assert 0 <= run.exposed_seconds <= step.communication_seconds * (1 + 1e-9)
    parts = {part.name: part.value for part in step.estimate.parts}
    assert parts[EXPOSED] + parts[OVERLAPPED] == pytest.approx(step.communication_seconds)
    assert parts.get(BUBBLE, 0.0) == pytest.approx(run.bubble_seconds)
    quantiles = step.estimate.quantiles
    assert quantiles.p10 <= quantiles.p50 <= quantiles.p90
    assert all(part.source for part in step.estimate.parts)
    assert all(math.isfinite(each.bytes) and each.bytes >= 0 for each in step.traffic)
    assert all(each.seconds > 0 and each.count > 0 and each.members > 1 for each in step.traffic)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_slower_network_never_makes_a_step_faster(strategy: str) -> None:
    at, layout = environment(ON), layout_of(strategy, 4, 4)
    slower = replace(at, network=with_factor(at.network, intra=0.25))
    now, then = (
        predict_step(ExecutedGraph(gpt2()), layout, 2, at),
        predict_step(ExecutedGraph(gpt2()), layout, 2, slower),
    )
    assert then.seconds >= now.seconds * (1 - 1e-9)
    assert then.communication_seconds > now.communication_seconds
    if "pp" not in strategy:  # a slower link may be worth other cuts
        assert then.run.computing_seconds == pytest.approx(now.run.computing_seconds)


@pytest.mark.parametrize("strategy", ["ddp", "dp", "zero1", "zero3", "dp=1", "tp=1", "pp=1", "cp=1"])
def test_one_device_is_one_device(strategy: str) -> None:
    at = environment("a100-pcie-40gb")
    alone = step_estimate(at.model.price(gpt2(), at.device))
    step = predict_step(ExecutedGraph(gpt2()), layout_of(strategy, 1, 1), 1, at)
    assert step.seconds == pytest.approx(alone.seconds, rel=1e-3)
    assert step.run.computing_seconds == pytest.approx(alone.device_seconds)
    assert step.traffic == ()
    assert step.moved_bytes == step.coordination_ratio == 0


def test_compression_moves_half_and_is_never_slower() -> None:
    whole, half = (parallel_step_on(gpt2(), strategy, ON) for strategy in ("dp=4", "dp=4,compress=fp16"))
    assert half.moved_bytes == whole.moved_bytes / 2 == parameter_bytes(gpt2()) / 2
    assert half.seconds <= whole.seconds


def test_overlapping_is_never_slower() -> None:
    overlapped, later = (parallel_step_on(gpt2(), text, ON) for text in ("dp=4", "dp=4,overlap=no"))
    assert overlapped.seconds <= later.seconds


def test_accumulation_exchanges_as_much_in_a_longer_step() -> None:
    one, four = (parallel_step_on(gpt2(), "ddp", ON, count) for count in (1, 4))
    assert four.moved_bytes == one.moved_bytes
    assert four.run.computing_seconds > 2 * one.run.computing_seconds
    assert four.run.exposed_seconds == pytest.approx(one.run.exposed_seconds)
    assert four.coordination_ratio < one.coordination_ratio


def test_bytes_of_the_sharded_strategies() -> None:
    whole = parameter_bytes(gpt2())
    assert parallel_step_on(gpt2(), "zero1", ON).moved_bytes == 2 * whole
    assert parallel_step_on(gpt2(), "zero2", ON, 3).moved_bytes == (3 + 1) * whole
    assert 2.5 * whole < parallel_step_on(gpt2(), "zero3", ON).moved_bytes <= 3 * whole


def test_a_sharded_optimizer_is_quicker_and_nothing_else_is() -> None:
    ddp, zero = parallel_step_on(gpt2(), "ddp", ON), parallel_step_on(gpt2(), "zero1", ON)
    assert zero.run.phases[Phase.FORWARD] == pytest.approx(ddp.run.phases[Phase.FORWARD])
    updates = [
        sum(part.value for part in step.estimate.parts if part.name.startswith("optimizer"))
        for step in (ddp, zero)
    ]
    assert updates[1] == pytest.approx(updates[0] / 4, rel=0.1)


def test_more_bytes_never_take_less() -> None:
    small, large = graph("voice-conv", batch=20), graph("voice-linear", batch=20)
    assert parameter_bytes(small) < parameter_bytes(large)
    steps = [parallel_step_on(of, "ddp", "gtx1080ti:4") for of in (small, large)]
    assert steps[0].communication_seconds < steps[1].communication_seconds


def test_gradients_of_sequences_in_parts_are_averaged() -> None:
    step = parallel_step_on(gpt2(), "cp=4", ON)
    (reduction,) = [each for each in step.traffic if "gradients" in each.name]
    assert reduction.bytes == parameter_bytes(gpt2())
    assert reduction.members == 4


def test_exchanges_inside_a_node_do_not_touch_the_network() -> None:
    traffic = parallel_step_on(gpt2(), "tp=2,dp=2", "a100-sxm-80gb:2x2").traffic
    inside, between = (
        environment("a100-sxm-80gb:2x2").network.intra,
        environment("a100-sxm-80gb:2x2").network.inter,
    )
    assert inside is not None
    assert between is not None
    tiers = {each.axes: each.tier for each in traffic}
    assert tiers[Axis.TENSOR,] == inside.name
    assert tiers[Axis.DATA,] == between.name


def test_devices_of_a_layout_are_all_of_the_hardware() -> None:
    assert hardware(ON).devices == layout_of("ddp", 4, 4).devices
    strategy = "tp=2,sp=no,pp=2"
    assert parallel_step_on(gpt2(), strategy, ON).layout == Layout(strategy, tensor=2, pipeline=2)


def test_the_host_starts_every_exchange_of_divided_layers() -> None:
    """GPT-2 of 12 blocks: two sums in each forward pass and two in each backward pass, and those around."""
    at = environment("a100-sxm-80gb:8")
    whole = divide_step(ExecutedGraph(gpt2()), layout_of("tp=2,sp=no", 2, 8))
    step = at.model.price(whole.graph, at.device)
    plain = call_times(step)
    launched = with_launched_exchanges(plain, whole, step)
    added = launched.host - plain.host
    assert added.sum() == pytest.approx(len(whole.exchanges) * step.host.exchange_seconds)
    assert len(whole.exchanges) >= 4 * 12
    assert launched.device.tolist() == plain.device.tolist()
