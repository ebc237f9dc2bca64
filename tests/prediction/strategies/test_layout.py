"""Layouts: every valid form, and every invalid one with what works instead."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.parameter_server import server_plan
from foretrain.prediction.strategies.strategy import Layout, ServerPlan, layout_of

SEQUENCE = {"sequence_parallel": True, "assumes_sequence_parallel": True}
"""Megatron's default with tensor parallelism."""


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ddp", {"data": 8}),
        ("dp", {"data": 8, "replication": "dp"}),
        ("zero1", {"shard": 8, "zero_stage": 1}),
        ("zero2", {"shard": 8, "zero_stage": 2}),
        ("zero3", {"shard": 8, "zero_stage": 3}),
        ("fsdp", {"shard": 8, "zero_stage": 3}),
        ("hsdp", {"shard": 8, "zero_stage": 3}),
        ("dp=8", {"data": 8}),
        ("tp=8", {"tensor": 8, **SEQUENCE}),
        ("tp=2,dp=4", {"tensor": 2, "data": 4, **SEQUENCE}),
        ("tp=2", {"tensor": 2, "data": 4, **SEQUENCE}),  # dp takes what is left
        ("tp=2,sp,dp=4", {"tensor": 2, "data": 4, "sequence_parallel": True}),
        ("tp=2,sp=no,dp=4", {"tensor": 2, "data": 4}),
        ("tp=2,sp=keep", {"tensor": 2, "data": 4, "sequence_parallel": True, "keeps_gathered": True}),
        ("pp=4,dp=2", {"pipeline": 4, "data": 2}),
        ("pp=4,schedule=gpipe", {"pipeline": 4, "data": 2, "schedule": "gpipe"}),
        ("pp=2,chunks=3", {"pipeline": 2, "data": 4, "schedule": "interleaved", "chunks": 3}),
        ("cp=4", {"context": 4, "data": 2}),
        ("ep=4", {"expert": 4, "data": 2}),
        ("ep=4,dp=8", {"expert": 4, "data": 2}),
        ("zero=1", {"shard": 8, "zero_stage": 1}),
        ("tp=2,zero=3", {"tensor": 2, "shard": 4, "zero_stage": 3, **SEQUENCE}),
        ("zero=3,shard=2", {"shard": 2, "data": 4, "zero_stage": 3}),
        ("tp=2,pp=2,dp=2,zero=2", {"tensor": 2, "pipeline": 2, "shard": 2, "zero_stage": 2, **SEQUENCE}),
        ("dp=8,compress=fp16", {"data": 8, "compression": "fp16"}),
        ("dp=8,overlap=no", {"data": 8, "overlaps": False}),
        ("ps-sync", {"data": 8, "replication": "parameter-server", "servers": ServerPlan("sync", 8, 1)}),
        ("ps-ksync=3,servers=2",
         {"data": 8, "replication": "parameter-server", "servers": ServerPlan("ksync", 3, 2)}),
    ],
)  # fmt: skip
def test_forms_on_8_devices_of_one_node(strategy: str, expected: dict[str, object]) -> None:
    layout = layout_of(strategy, 8, 8)
    assert layout == Layout(strategy, **expected)  # type: ignore[arg-type]
    assert layout.devices == 8


def test_hybrid_sharding_shares_within_nodes() -> None:
    layout = layout_of("hsdp", 16, 8)
    assert (layout.shard, layout.data) == (8, 2)
    assert layout.replicas == 16


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("tp=2,pp=2,dp=4", "tensor 2 x pipeline 2 x data 4 = 16 devices, but the hardware has 8; dp=2"),
        ("tp=3", r"tensor 3 x data 2 = 6 devices, but the hardware has 8; .*must divide 8 \(1, 2, 4, 8\)"),
        ("tp=16", r"but the hardware has 8; .*must divide 8"),
        ("ep=3,dp=8", r"ep=3 must divide the 8 data-parallel devices \(1, 2, 4, 8\)"),
        ("zero=3,shard=3", r"shard=3 does not divide 8 data-parallel devices \(1, 2, 4, 8\)"),
        ("shard=4", "shard=N requires zero=1, zero=2 or zero=3"),
        ("tq=2", "'tq' is not one of tp, sp, tp-overlap, cp, pp, .*, dp, compress, overlap, ep, zero, shard"),
        ("tp=2,tp=4", "gives tp twice"),
        ("tp=0", "tp=0 must be a whole number of at least 1"),
        ("tp=two", "tp=two must be a whole number"),
        ("tp=", r"tp=\.\.\. must be a whole number"),
        ("tp=-2", "tp=-2 must be a whole number"),
        ("zero=4", "zero=4 is not one of zero=0, zero=1, zero=2, zero=3"),
        ("pp=2,schedule=zb", "schedule=zb is not one of schedule=gpipe, schedule=1f1b, schedule=interleaved"),
        ("dp=8,compress=int8", "compress=int8 is not one of compress=fp16, compress=bf16"),
        ("dpp", "did you mean d"),
        ("zero", "is not one of ddp, zero1, zero2, zero3, fsdp, hsdp, dp, ps-sync, .*; did you mean zero1"),
        ("ps-sinc", "write ps-sync, ps-async, ps-ksync=K"),
        ("ps-ksync", "needs a number: ps-ksync=K"),
        ("ps-sync=2", "takes no number"),
        ("ps-ksync=9", "K must be between 1 and 8 workers, got 9"),
        ("ps-kasync=0", "K must be between 1 and 8 workers, got 0"),
        ("ps-sync,servers=0", "servers must be at least 1, got 0"),
    ],
)  # fmt: skip
def test_invalid_texts_are_refused_with_what_works(strategy: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        layout_of(strategy, 8, 8)


def test_data_parallel_threads_stay_on_their_node() -> None:
    with pytest.raises(InvalidRequest, match=r"one node.*use ddp"):
        layout_of("dp", 16, 8)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("tp=2,sp=maybe", "sp=maybe is not one of sp, sp=keep, sp=no"),
        ("sp,dp=8", "give tp=2 or more"),
        ("dp=8,overlap=perhaps", "overlap=perhaps is not one of overlap=yes, overlap=no"),
        ("pp=4,chunks=2,schedule=1f1b", "use schedule=interleaved"),
        ("dp=8,chunks=2", "give pp=2 or more"),
        ("tp=2,,dp=4", "'' is not one of"),
        ("tp=²", "must be a whole number"),
    ],
)
def test_invalid_values_and_options_without_effect_are_refused(strategy: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        layout_of(strategy, 8, 8)


degree = st.sampled_from([1, 2, 3, 4])


@given(degree, degree, degree, degree, st.sampled_from([0, 1, 2, 3]))
def test_degrees_that_multiply_up_are_taken_as_written(tp: int, cp: int, pp: int, dp: int, zero: int) -> None:
    devices = math.prod((tp, cp, pp, dp))
    layout = layout_of(f"tp={tp},cp={cp},pp={pp},dp={dp},zero={zero}", devices, 8)
    assert (layout.tensor, layout.context, layout.pipeline, layout.replicas) == (tp, cp, pp, dp)
    assert layout.devices == devices
    assert math.prod(layout.degrees.values()) == devices
    with pytest.raises(InvalidRequest, match=r"uses all of them|must divide"):
        layout_of(f"tp={tp},cp={cp},pp={pp},dp={dp}", devices + 1, 8)


@given(st.text(max_size=12))
def test_any_text_is_a_layout_or_an_error_of_ours(text: str) -> None:
    try:
        layout = layout_of(text, 8, 8)
    except InvalidRequest as error:
        assert str(error)
    else:
        assert layout.devices == 8


def test_servers_wait_for_all_one_or_k() -> None:
    assert server_plan("ps-sync", 4) == ServerPlan("sync", 4, 1)
    assert server_plan("ps-async", 4) == ServerPlan("async", 1, 1)
    assert server_plan("ps-kbatchasync=2,servers=3", 4) == ServerPlan("kbatchasync", 2, 3)
    assert layout_of("ps-ksync=3", 4, 4).contributions == 3
    assert layout_of("ddp", 4, 4).contributions == 4
