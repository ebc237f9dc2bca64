"""ZeRO and FSDP: bytes by hand, when they move, and an optimizer divided."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from tests.support import divided_graphs
from tests.support.hand_made_steps import environment, gpt2, graph

from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import call_times
from foretrain.prediction.strategies.program import (
    ROOT,
    Axis,
    Program,
    When,
    optimizer_start,
    parameter_bytes,
    unit_of,
)
from foretrain.prediction.strategies.sharded import shard_program, with_sharded_optimizer
from foretrain.workloads.graph import Phase, Role
from foretrain.workloads.rules import operators


def moved(of: Program) -> Counter[Verb]:
    """Bytes by verb, each exchange once."""
    result: Counter[Verb] = Counter()
    for exchange in of.exchanges:
        result[exchange.verb] += int(exchange.bytes)
    return result


def of_blocks() -> int:
    """Bytes of the parameters in blocks: those outside stay gathered."""
    of = gpt2()
    return sum(
        of.specs[buffer.spec].bytes
        for buffer in of.buffers
        if buffer.role is Role.PARAMETER and unit_of(buffer.name) != ROOT
    )


@pytest.mark.parametrize("stage", [1, 2])
def test_stages_1_and_2_scatter_gradients_and_gather_parameters_once(stage: int) -> None:
    result = shard_program(Program(gpt2()), 4, stage)
    whole = parameter_bytes(gpt2())
    assert moved(result) == {Verb.ALL_GATHER: whole, Verb.REDUCE_SCATTER: whole}
    (gather,) = [exchange for exchange in result.exchanges if exchange.verb is Verb.ALL_GATHER]
    assert gather.after == len(gpt2().calls) - 1
    assert gather.when is When.LAST
    assert result.zero_stage == stage


def test_stage_3_gathers_blocks_twice_and_scatters_once() -> None:
    whole = parameter_bytes(gpt2())
    result = shard_program(Program(gpt2()), 4, 3)
    assert moved(result) == {Verb.ALL_GATHER: whole + of_blocks(), Verb.REDUCE_SCATTER: whole}
    assert all(exchange.when is When.EVERY for exchange in result.exchanges)


def test_half_precision_sends_half_the_bytes() -> None:
    half = graph("gpt2", seq_len=64, precision="bf16")
    whole = parameter_bytes(half)
    assert moved(shard_program(Program(half), 4, 1)) == {
        Verb.ALL_GATHER: whole // 2,
        Verb.REDUCE_SCATTER: whole // 2,
    }


def test_gradients_added_up_in_full_precision_are_sent_in_it() -> None:
    full = graph("gpt2", seq_len=64, precision="bf16", master_weights=True, gradients="fp32")
    sent = moved(shard_program(Program(full), 4, 1))
    assert sent[Verb.REDUCE_SCATTER] == 4 * full.parameters
    assert sent[Verb.ALL_GATHER] == 2 * full.parameters


def test_gradients_stay_whole_between_micro_batches_only_in_stage_1() -> None:
    def when(stage: int) -> set[When]:
        exchanges = shard_program(Program(gpt2()), 4, stage).exchanges
        return {exchange.when for exchange in exchanges if exchange.verb is Verb.REDUCE_SCATTER}

    assert when(1) == {When.LAST}
    assert when(2) == when(3) == {When.EVERY}


def test_blocks_are_gathered_one_ahead() -> None:
    result = [e for e in shard_program(Program(gpt2()), 4, 3).exchanges if e.verb is Verb.ALL_GATHER]
    forward = [e for e in result if "blocks" in e.name and gpt2().calls[e.before].phase is Phase.FORWARD]
    assert len(forward) == 12
    for earlier, later in itertools.pairwise(forward):
        assert later.after == earlier.before - 1  # starts as the block before begins
        assert later.before > earlier.before


def test_hybrid_sharding_all_reduces_shares_between_the_parts() -> None:
    whole = parameter_bytes(gpt2())
    result = shard_program(Program(gpt2()), 4, 3, replicas=2)
    assert moved(result)[Verb.ALL_REDUCE] == whole // 4
    between = [exchange for exchange in result.exchanges if exchange.verb is Verb.ALL_REDUCE]
    assert {exchange.when for exchange in between} == {When.LAST}
    assert all(Axis.DATA in exchange.axes and Axis.SHARD not in exchange.axes for exchange in between)
    assert result.devices == result.replicas == 8


def test_devices_that_divide_sequences_share_state() -> None:
    """Their gradients are scattered among them, so nothing is left to all-reduce."""
    result = shard_program(Program(gpt2(), degrees={Axis.CONTEXT: 2}), 1, 3)
    assert moved(result)[Verb.REDUCE_SCATTER] == parameter_bytes(gpt2())
    assert not any(exchange.verb is Verb.ALL_REDUCE for exchange in result.exchanges)
    assert all(exchange.axes == (Axis.SHARD, Axis.CONTEXT) for exchange in result.exchanges)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_one_device_changes_nothing(stage: int) -> None:
    whole = Program(gpt2())
    assert shard_program(whole, 1, stage) is whole


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_exchanges_lie_inside_the_step(stage: int) -> None:
    result = shard_program(Program(gpt2()), 4, stage, replicas=2)
    assert all(-1 <= e.after < e.before <= len(gpt2().calls) for e in result.exchanges)
    assert all(e.bytes > 0 for e in result.exchanges)


def test_a_sharded_optimizer_takes_its_share_of_the_time() -> None:
    at, start = environment("a100-sxm-80gb"), optimizer_start(gpt2())

    def updating(degree: int) -> float:
        step = at.model.price(with_sharded_optimizer(gpt2(), degree), at.device)
        return float(call_times(step).device[start:].sum())

    def computing(degree: int) -> float:
        step = at.model.price(with_sharded_optimizer(gpt2(), degree), at.device)
        return float(call_times(step).device[:start].sum())

    assert updating(4) == pytest.approx(updating(1) / 4, rel=0.1)
    assert computing(4) == computing(1)
    assert with_sharded_optimizer(gpt2(), 1) is gpt2()


def test_a_sharded_optimizer_works_on_as_many_elements_in_all() -> None:
    divided = with_sharded_optimizer(gpt2(), 8)
    for whole, share in zip(gpt2().calls, divided.calls, strict=True):
        if whole.phase is Phase.OPTIMIZER:
            for before, after in zip(whole.inputs, share.inputs, strict=True):
                if before >= 0:
                    elements = gpt2().specs[before].elements
                    assert divided.specs[after].elements == -(-elements // 8)
        else:
            assert share == whole


def test_adafactor_updates_a_share_of_the_rows() -> None:
    whole = divided_graphs.graph("gpt2", optimizer="adafactor", seq_len=64)
    share = with_sharded_optimizer(whole, 4)
    flop = [
        sum(op.work.flop for op in operators(of) if op.phase is Phase.OPTIMIZER and op.name == "aten.mm")
        for of in (whole, share)
    ]
    assert flop[0] / 4 == pytest.approx(flop[1], rel=0.01)
