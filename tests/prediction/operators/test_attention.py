"""Fused attention: hand-derived times, and what must hold on any device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from calibration.datasets.aiconfigurator import attention_work as causal
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_devices import doubled, plain_device

from foretrain.facts.devices import Device, devices
from foretrain.prediction.operators.attention import (
    AttentionConstants,
    AttentionKernel,
    AttentionModel,
    attention_seconds,
    calibration,
)
from foretrain.prediction.operators.pricing import roofline_seconds, table
from foretrain.workloads.ops import ATTENTION_GENERATIONS, Direction, Work

COMMON = AttentionConstants(start_cycles=0.0, least_split=1e30, uneven=1.0)
IDEAL = AttentionKernel(1.0, 1.0, 1.0, 1.0, lanes=0.0, k_start=0.0)
NEAR = 0.95
"""The share of peak that no kernel exceeds."""
GPUS = tuple(item for item in devices().values() if item.is_gpu)


def full(batch: int, length: int, heads: int, head: int) -> Work:
    """Attention to all keys."""
    masked = causal(batch, length, heads, heads, head)
    return replace(masked, dims={**masked.dims, "causal": 0}, flop=2 * masked.flop)


def priced(work: Work, device: Device) -> float:
    """The time that the shipped model predicts."""
    return float(AttentionModel().seconds(table([work]), device)[0])


def test_attention_to_all_keys_takes_its_flop() -> None:
    """128 queries, 128 keys, heads of 32: two products of 2 · 128 · 128 · 32 FLOP, at half of 8 FLOP/s."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    work = replace(full(1, 128, 1, 32), dtype="float16")
    half = replace(IDEAL, forward=0.5)
    seconds = attention_seconds(table([work]), device, COMMON, half)[0]
    assert seconds == pytest.approx(2 * 2 * 128 * 128 * 32 / 4, rel=1e-3)


def test_heads_are_padded_to_32() -> None:
    """40 wide takes as long as 64, at the same rate."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    works = [replace(full(1, 128, 1, width), dtype="float16") for width in (40, 64)]
    narrow, padded = attention_seconds(table(works), device, COMMON, IDEAL)
    assert narrow == padded


def test_scores_cost_arithmetic_outside_of_tensor_cores() -> None:
    """128 · 128 scores of 10 operations at 1 FLOP/s beside products that take almost nothing."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    work = replace(full(1, 128, 1, 32), dtype="float16")
    without, with_lanes = (
        attention_seconds(table([work]), device, COMMON, replace(IDEAL, lanes=lanes))[0]
        for lanes in (0.0, 10.0)
    )
    assert with_lanes - without == pytest.approx(10 * 128 * 128)


def test_a_board_of_half_rate_comes_near_its_peak() -> None:
    """A kernel that reaches half of the full rate reaches almost all of a peak of half of that."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    work = replace(full(1, 128, 1, 32), dtype="float16")
    clock, sms = device.sheet.number("boost_clock_hertz"), device.sheet.number("sm_count")
    kernel = replace(IDEAL, forward=0.5)
    seconds = attention_seconds(table([work]), device, COMMON, kernel, full_rate=2 * 8 / (clock * sms))[0]
    assert work.flop / seconds / 8 == pytest.approx((1 + NEAR**-8) ** (-1 / 8))


def test_causal_attention_pays_the_diagonal_whole() -> None:
    """Of 256 keys blocks of 128 queries see 192 on average, not 128."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    works = (full(1, 256, 1, 4), causal(1, 256, 1, 1, 4))
    whole, masked = attention_seconds(
        table([replace(work, dtype="float16") for work in works]), device, COMMON, IDEAL
    )
    assert masked / whole == pytest.approx(192 / 256)


def test_a_window_leaves_its_keys_and_a_block() -> None:
    """Of 4,096 keys a window of 128 leaves 256 to a block of 128 queries."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    whole = replace(full(1, 4096, 1, 32), dtype="float16")
    windowed = replace(whole, dims={**whole.dims, "window": 128}, flop=whole.flop / 32)
    times = attention_seconds(table([whole, windowed]), device, COMMON, IDEAL)
    assert times[1] / times[0] == pytest.approx(256 / 4096)


def test_the_first_causal_blocks_have_fewer_keys_than_their_window() -> None:
    """With 256 of 1,024 keys, blocks of 128 queries iterate over 128, 256, then six times 384 of them."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    whole = replace(full(1, 1024, 1, 32), dtype="float16")
    dims = {**whole.dims, "causal": 1}
    windowed = [replace(whole, dims={**dims, "window": size}) for size in (256, 896, 1023)]
    times = attention_seconds(table([whole, *windowed]), device, COMMON, IDEAL)
    assert times[1] / times[0] == pytest.approx((128 + 256 + 6 * 384) / 8 / 1024)
    # From 1,024 - 128 on only the corner of the last block is beyond the window: as without one
    assert times[2] == pytest.approx(times[3]) == pytest.approx(times[0] * (1024 + 128) / 2 / 1024)


def test_backward_does_five_products_for_two() -> None:
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    forward = replace(full(1, 128, 1, 4), dtype="float16")
    backward = replace(forward, direction=Direction.BACKWARD)
    both = attention_seconds(table([forward, backward]), device, COMMON, IDEAL)
    assert both[1] == pytest.approx(2.5 * both[0])


def _rates(device_id: str, generation: str = "default", head: int = 128) -> tuple[float, float]:
    """TFLOP/s forward and backward of a long causal sequence."""
    dims = {"generation": ATTENTION_GENERATIONS.index(generation)}
    forward = causal(2, 16384, 32, 32, head)
    forward = replace(forward, dims={**forward.dims, **dims})
    backward = replace(forward, direction=Direction.BACKWARD, flop=2.5 * forward.flop)
    return tuple(each.flop / priced(each, devices()[device_id]) / 1e12 for each in (forward, backward))  # type: ignore[return-value]


def test_rates_belong_to_the_chip_and_the_kernel() -> None:
    """Boards of one chip differ by clock and memory alone; the backward pass takes about three times."""
    assert _rates("a100-sxm-40gb") == pytest.approx(_rates("a100-sxm-80gb"), rel=0.01)
    assert _rates("h100-sxm") == pytest.approx(_rates("h200-sxm"), rel=0.01)
    for device_id in ("a100-sxm-80gb", "h200-sxm", "gb200"):
        forward, backward = _rates(device_id)
        assert 2.8 < 2.5 * forward / backward < 3.4


def test_later_kernels_are_faster_on_hopper() -> None:
    """About 0.17, 0.35 and 0.6 of 989 TFLOP/s; PyTorch's choice is cuDNN; A100 has no version 3."""
    by_kernel = [_rates("h100-sxm", name)[0] for name in ("flash1", "flash2", "flash3")]
    assert by_kernel == sorted(by_kernel)
    assert 300 < by_kernel[1] < 420
    assert _rates("h100-sxm") == _rates("h100-sxm", "cudnn")
    assert _rates("a100-sxm-80gb", "flash3") == _rates("a100-sxm-80gb", "flash2")
    assert calibration().generation(0, devices()["b200"]) == "cudnn"


LENGTHS, HEADS = st.sampled_from([1, 64, 128, 300, 1024, 4096]), st.sampled_from([1, 8, 32])


@settings(max_examples=40)
@given(st.sampled_from(GPUS), st.sampled_from([1, 4, 64]), LENGTHS, HEADS)
def test_conforms(target: Device, batch: int, length: int, heads: int) -> None:
    work = causal(batch, length, heads, heads, 64)
    once = priced(work, target)
    assert once >= float(roofline_seconds(table([work]), target)[0])
    assert priced(causal(2 * batch, length, heads, heads, 64), target) >= once
    assert priced(causal(batch, 2 * length, heads, heads, 64), target) >= once
    assert priced(causal(batch, length, 2 * heads, 2 * heads, 64), target) >= once
    assert priced(work, doubled(target)) <= once
