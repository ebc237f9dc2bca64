"""Fused attention: hand-derived times, and what must hold on any device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from calibration.datasets.aiconfigurator import attention_work as causal
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_devices import doubled, plain_device

from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators.attention import AttentionConstants, AttentionModel, attention_seconds
from foretrain.prediction.operators.listing import table
from foretrain.prediction.operators.pricing import roofline_seconds
from foretrain.workloads.ops import Direction, Work

IDEAL = AttentionConstants(0.0, 1.0, 0.0, 0.0, 1e30)
GPUS = tuple(item for item in devices().values() if item.kind == "gpu")


def full(batch: int, length: int, heads: int, head: int) -> Work:
    """Attention to all keys."""
    masked = causal(batch, length, heads, heads, head)
    return replace(masked, dims={**masked.dims, "causal": 0}, flop=2 * masked.flop)


def priced(work: Work, device: Device) -> float:
    """The time that the shipped model predicts."""
    return float(AttentionModel().seconds(table([work]), device)[0])


def test_attention_to_all_keys_takes_its_flop() -> None:
    """128 queries, 128 keys, heads of 4: two products of 2 · 128 · 128 · 4 FLOP, at 8 FLOP/s in FP16."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    work = replace(full(1, 128, 1, 4), dtype="float16")
    seconds = attention_seconds(table([work]), device, IDEAL, 1.0)[0]
    assert seconds == pytest.approx(2 * 2 * 128 * 128 * 4 / 8)


def test_causal_attention_pays_the_diagonal_whole() -> None:
    """Of 256 keys blocks of 128 queries see 192 on average, not 128."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    whole, masked = (replace(work, dtype="float16") for work in (full(1, 256, 1, 4), causal(1, 256, 1, 1, 4)))
    ratio = attention_seconds(table([masked]), device, IDEAL, 1.0) / attention_seconds(
        table([whole]), device, IDEAL, 1.0
    )
    assert ratio[0] == pytest.approx(192 / 256)


def test_backward_does_five_products_for_two() -> None:
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    forward = replace(full(1, 128, 1, 4), dtype="float16")
    backward = replace(forward, direction=Direction.BACKWARD)
    both = attention_seconds(table([forward, backward]), device, IDEAL, 1.0)
    assert both[1] == pytest.approx(2.5 * both[0])


LENGTHS, HEADS = st.sampled_from([1, 64, 128, 300, 1024, 4096]), st.sampled_from([1, 8, 32])


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(GPUS), st.sampled_from([1, 4, 64]), LENGTHS, HEADS)
def test_conforms(target: Device, batch: int, length: int, heads: int) -> None:
    work = causal(batch, length, heads, heads, 64)
    once = priced(work, target)
    assert once >= float(roofline_seconds(table([work]), target)[0])
    assert priced(causal(2 * batch, length, heads, heads, 64), target) >= once
    assert priced(causal(batch, 2 * length, heads, heads, 64), target) >= once
    assert priced(causal(batch, length, 2 * heads, 2 * heads, 64), target) >= once
    assert priced(work, doubled(target)) <= once
