"""DistributedDataParallel: buckets by hand, what is exposed, compression, accumulation, other axes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hand_made_steps import by_bytes, gpt2, step_of, times

from foretrain.prediction.step.compose import compose
from foretrain.prediction.strategies.data_parallel import data_parallel
from foretrain.prediction.strategies.program import (
    AVERAGING,
    Axis,
    Gradient,
    Program,
    When,
    fill_buckets,
    gradients,
    group_averaged,
    optimizer_start,
    parameter_bytes,
    reduce_last,
)
from foretrain.workloads.graph import Phase

MIB = 1 << 20


def ready_in_turn(*sizes: int) -> list[Gradient]:
    return [Gradient(f"p{index}", size // 4, size, index) for index, size in enumerate(sizes)]


def test_the_first_bucket_holds_one_mebibyte_and_the_others_25() -> None:
    result = list(fill_buckets(ready_in_turn(*[MIB] * 60)))
    assert [bucket.bytes for bucket in result] == [MIB, 25 * MIB, 25 * MIB, 9 * MIB]
    assert [bucket.ready for bucket in result] == [0, 25, 50, 59]


def test_a_bucket_is_closed_by_the_gradient_that_fills_it() -> None:
    result = list(fill_buckets(ready_in_turn(MIB // 2, 30 * MIB, 24 * MIB, 24 * MIB)))
    assert [bucket.bytes for bucket in result] == [30 * MIB + MIB // 2, 48 * MIB]
    assert list(fill_buckets([])) == []


@given(st.lists(st.integers(1, 40 * MIB).map(lambda size: 4 * size), max_size=40))
def test_buckets_hold_every_gradient_once(sizes: list[int]) -> None:
    result = list(fill_buckets(ready_in_turn(*sizes)))
    assert sum(bucket.bytes for bucket in result) == sum(sizes)
    assert sum(bucket.elements for bucket in result) * 4 == sum(sizes)
    assert [bucket.ready for bucket in result] == sorted({bucket.ready for bucket in result})


def test_gradients_are_ready_from_the_last_layer_to_the_first() -> None:
    names = [gradient.parameter for gradient in gradients(gpt2())]
    blocks = [int(name.split(".")[1]) for name in names if name.startswith("blocks.")]
    assert blocks == sorted(blocks, reverse=True)
    assert sum(gradient.bytes for gradient in gradients(gpt2())) == parameter_bytes(gpt2())


def test_the_last_bucket_is_exposed() -> None:
    """Backward calls of 3 s each finish gradients that take 1, 2 and 4 s to reduce: only the last waits."""
    of = step_of("fbbbo", [1, 2, 4])
    result = data_parallel(Program(of), 4, bucket_bytes=1.0)
    first_only = [exchange._replace(bytes=exchange.bytes / 4) for exchange in result.exchanges]
    assert [exchange.after for exchange in first_only] == [3]  # less than 1 MiB: one bucket
    each = [
        exchange._replace(bytes=seconds, after=after)
        for exchange, seconds, after in zip(first_only * 3, (1.0, 2.0, 4.0), (1, 2, 3), strict=True)
    ]
    run = compose(Program(of, tuple(each)), times(3, 3, 3, 3, 1), by_bytes)
    assert run.seconds == 12 + 4 + 1
    assert run.exposed_seconds == 4
    assert run.computing_seconds == 13


def test_reducing_after_the_backward_pass_hides_nothing() -> None:
    of = step_of("fbbbo", [1, 2, 4])
    parts = [
        exchange._replace(bytes=1.0, after=after)
        for exchange, after in zip(data_parallel(Program(of), 4).exchanges * 3, (1, 2, 3), strict=True)
    ]
    late = reduce_last(Program(of, tuple(parts)))
    assert {exchange.after for exchange in late.exchanges} == {3}
    assert compose(late, times(3, 3, 3, 3, 1), by_bytes).exposed_seconds == 3


def test_reductions_of_a_real_model_wait_for_the_optimizer_and_for_nothing_else() -> None:
    result = data_parallel(Program(gpt2()), 8)
    assert sum(exchange.bytes for exchange in result.exchanges) == parameter_bytes(gpt2())
    assert {exchange.before for exchange in result.exchanges} == {optimizer_start(gpt2())}
    assert all(gpt2().calls[exchange.after].phase is Phase.BACKWARD for exchange in result.exchanges)
    assert result.devices == result.replicas == 8


@pytest.mark.parametrize("hook", ["fp16", "bf16"])
def test_compression_halves_the_bytes(hook: str) -> None:
    plain, sent = (data_parallel(Program(gpt2()), 4, compression=name) for name in (None, hook))
    assert len(plain.exchanges) == len(sent.exchanges)
    for whole, half in zip(plain.exchanges, sent.exchanges, strict=True):
        assert half.bytes == whole.bytes / 2


def test_accumulation_reduces_only_in_the_last_micro_batch() -> None:
    of = step_of("fbo", [1])
    result = data_parallel(Program(of, micro_batches=4), 2)
    assert {exchange.when for exchange in result.exchanges} == {When.LAST}
    run = compose(result, times(1, 2, 1), lambda _: 10.0)
    assert run.seconds == 4 * 3 + 10 + 1


def test_one_device_changes_nothing() -> None:
    whole = Program(gpt2())
    assert data_parallel(whole, 1) is whole


@pytest.mark.parametrize("axis", [Axis.CONTEXT, Axis.EXPERT])
def test_devices_that_share_sequences_or_experts_average_gradients_too(axis: Axis) -> None:
    """They have gradients of the same parameters, even if there is a single replica of all of them."""
    result = data_parallel(Program(gpt2(), degrees={axis: 4}), 1)
    assert sum(exchange.bytes for exchange in result.exchanges) == parameter_bytes(gpt2())
    assert all(axis in exchange.axes for exchange in result.exchanges)


def test_gradients_of_experts_are_averaged_only_between_devices_with_the_same_ones() -> None:
    of = step_of("fbbbo", [1, 2, 4])
    names = ("moe.experts.0.weight", "moe.experts.up", "moe.router.weight")
    buffers = tuple(buffer._replace(name=name) for buffer, name in zip(of.buffers, names, strict=True))
    of = replace(of, buffers=buffers)
    without = tuple(axis for axis in AVERAGING if axis is not Axis.EXPERT)
    together = {
        axes: [gradient.parameter for gradient in same]
        for axes, same in group_averaged(Program(of, degrees={Axis.EXPERT: 2}))
    }
    assert together == {AVERAGING: [names[2]], without: [*names[:2]]}
    assert [len(same) for _, same in group_averaged(Program(of))] == [3]
    sent = data_parallel(Program(of, degrees={Axis.EXPERT: 2}), 4).exchanges
    assert [(exchange.axes, exchange.bytes) for exchange in sent] == [(AVERAGING, 16), (without, 12)]
