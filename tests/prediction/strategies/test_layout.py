"""Layouts: every valid form, and every invalid one with what works instead."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.catalogue import layout_of
from foretrain.prediction.strategies.layout import Layout, ServerPlan
from foretrain.prediction.strategies.parameter_server import server_plan


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ddp", {"data": 8}),
        ("dp", {"data": 8, "is_single_process": True}),
        ("zero1", {"shard": 8, "zero_stage": 1}),
        ("zero2", {"shard": 8, "zero_stage": 2}),
        ("zero3", {"shard": 8, "zero_stage": 3}),
        ("fsdp", {"shard": 8, "zero_stage": 3}),
        ("hsdp", {"shard": 8, "zero_stage": 3}),
        ("dp=8", {"data": 8}),
        ("tp=8", {"tensor": 8}),
        ("tp=2,dp=4", {"tensor": 2, "data": 4}),
        ("tp=2", {"tensor": 2, "data": 4}),  # dp takes what is left
        ("tp=2,sp,dp=4", {"tensor": 2, "data": 4, "sequence_parallel": True}),
        ("tp=2,sp=keep", {"tensor": 2, "data": 4, "sequence_parallel": True, "keeps_gathered": True}),
        ("pp=4,dp=2", {"pipeline": 4, "data": 2}),
        ("pp=4,schedule=gpipe", {"pipeline": 4, "data": 2, "schedule": "gpipe"}),
        ("pp=2,chunks=3", {"pipeline": 2, "data": 4, "schedule": "interleaved", "chunks": 3}),
        ("cp=4", {"context": 4, "data": 2}),
        ("ep=4", {"expert": 4, "data": 2}),
        ("ep=4,dp=8", {"expert": 4, "data": 2}),
        ("zero=1", {"shard": 8, "zero_stage": 1}),
        ("tp=2,zero=3", {"tensor": 2, "shard": 4, "zero_stage": 3}),
        ("zero=3,shard=2", {"shard": 2, "data": 4, "zero_stage": 3}),
        ("tp=2,pp=2,dp=2,zero=2", {"tensor": 2, "pipeline": 2, "shard": 2, "zero_stage": 2}),
        ("dp=8,compress=fp16", {"data": 8, "compression": "fp16"}),
        ("dp=8,overlap=no", {"data": 8, "overlaps": False}),
        ("ps-sync", {"data": 8, "servers": ServerPlan("sync", 8, 1)}),
        ("ps-ksync=3,servers=2", {"data": 8, "servers": ServerPlan("ksync", 3, 2)}),
    ],
)  # fmt: skip
def test_forms_on_8_devices_of_one_node(strategy: str, expected: dict[str, object]) -> None:
    found = layout_of(strategy, 8, 8)
    assert found == Layout(strategy, **expected)  # type: ignore[arg-type]
    assert found.devices == 8


def test_hybrid_sharding_shares_within_nodes() -> None:
    found = layout_of("hsdp", 16, 8)
    assert (found.shard, found.data) == (8, 2)
    assert found.replicas == 16


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("tp=2,pp=2,dp=4", "tensor 2 x pipeline 2 x data 4 = 16 devices, but the hardware has 8; dp=2"),
        ("tp=3", r"tensor 3 x data 2 = 6 devices, but the hardware has 8; .*must divide 8 \(1, 2, 4, 8\)"),
        ("tp=16", r"but the hardware has 8; .*must divide 8"),
        ("ep=3,dp=8", r"ep must divide dp \(1, 2, 4, 8\)"),
        ("zero=3,shard=3", r"shard=3 does not divide 8 data-parallel devices \(1, 2, 4, 8\)"),
        ("shard=4", "give zero=1, 2 or 3 with it"),
        ("tq=2", r"'tq' is not one of tp, cp, pp, dp, ep, shard, zero"),
        ("tp=2,tp=4", "says tp twice"),
        ("tp=0", "tp=0: give a whole number of at least 1"),
        ("tp=two", "tp=two: give a whole number"),
        ("tp=", r"tp=\.\.\.: give a whole number"),
        ("tp=-2", "tp=-2: give a whole number"),
        ("zero=4", "zero=4: give one of zero=0, zero=1, zero=2, zero=3"),
        ("pp=2,schedule=zb", "schedule=zb: give one of gpipe, 1f1b, interleaved"),
        ("dp=8,compress=int8", "compress=int8: give one of fp16, bf16"),
        ("dpp", "did you mean d"),
        ("zero", "is not one of ddp, dp, zero1"),
        ("ps-sinc", "write ps-sync, ps-async, ps-ksync=K"),
        ("ps-ksync", "needs a number: ps-ksync=K"),
        ("ps-sync=2", "takes no number"),
        ("ps-ksync=9", "waiting for 9 of 8 workers; K is 1 to 8"),
        ("ps-kasync=0", "K is 1 to 8"),
        ("ps-sync,servers=0", "at least one server"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_would_do(strategy: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        layout_of(strategy, 8, 8)


def test_data_parallel_threads_stay_on_their_node() -> None:
    with pytest.raises(InvalidRequest, match=r"one node.*use ddp"):
        layout_of("dp", 16, 8)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("tp=2,sp=maybe", "give one of sp, sp=keep"),
        ("sp,dp=8", "give tp=2 or more"),
        ("dp=8,overlap=perhaps", "give one of overlap=yes, overlap=no"),
        ("pp=4,chunks=2,schedule=1f1b", "use schedule=interleaved"),
        ("dp=8,chunks=2", "give pp=2 or more"),
        ("tp=2,,dp=4", "'' is not one of"),
        ("tp=²", "give a whole number"),
    ],
)
def test_odd_values_and_what_would_have_no_effect_are_refused(strategy: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        layout_of(strategy, 8, 8)


degree = st.sampled_from([1, 2, 3, 4])


@given(degree, degree, degree, degree, st.sampled_from([0, 1, 2, 3]))
def test_degrees_that_multiply_up_are_taken_as_written(tp: int, cp: int, pp: int, dp: int, zero: int) -> None:
    devices = math.prod((tp, cp, pp, dp))
    found = layout_of(f"tp={tp},cp={cp},pp={pp},dp={dp},zero={zero}", devices, 8)
    assert (found.tensor, found.context, found.pipeline, found.replicas) == (tp, cp, pp, dp)
    assert found.devices == devices
    assert math.prod(found.degrees.values()) == devices
    with pytest.raises(InvalidRequest, match=r"would take all|must divide"):
        layout_of(f"tp={tp},cp={cp},pp={pp},dp={dp}", devices + 1, 8)


@given(st.text(max_size=12))
def test_any_text_is_a_layout_or_an_error_of_ours(text: str) -> None:
    try:
        found = layout_of(text, 8, 8)
    except InvalidRequest as error:
        assert str(error)
    else:
        assert found.devices == 8


def test_servers_wait_for_all_one_or_k() -> None:
    assert server_plan("ps-sync", 4) == ServerPlan("sync", 4, 1)
    assert server_plan("ps-async", 4) == ServerPlan("async", 1, 1)
    assert server_plan("ps-kbatchasync=2,servers=3", 4) == ServerPlan("kbatchasync", 2, 3)
    assert layout_of("ps-ksync=3", 4, 4).contributions == 3
    assert layout_of("ddp", 4, 4).contributions == 4
