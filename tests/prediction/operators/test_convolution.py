"""Convolutions: hand-derived products and times, and what must hold on any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calibration.datasets.works import Convolution, convolution
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_devices import doubled, plain_device

from foretrain.facts.devices import Device, device, devices
from foretrain.prediction.operators import matrix, streaming
from foretrain.prediction.operators.convolution import (
    TILES,
    ConvolutionConstants,
    ConvolutionModel,
    calibration,
    convolution_seconds,
    least_seconds,
    lower,
    on_lanes_seconds,
    share_by_rate,
)
from foretrain.prediction.operators.matrix import tf32_reach
from foretrain.prediction.operators.pricing import table
from foretrain.workloads.ops import Direction, Work

GPUS = tuple(item for item in devices().values() if item.is_gpu)
IDEAL = ConvolutionConstants(
    start_cycles=0.0,
    tile_efficiency=(1.0,) * len(TILES),
    fused_winograd=1.0,
    split_winograd=1.0,
    transform=1.0,
    k_start=0.0,
    wave_rounding=1.0,
    direction_efficiency=(1.0, 1.0, 1.0),
    least_split=64.0,
    tensor_efficiency=1.0,
    tensor_k_start=0.0,
    strided_gradient=0.0,
    conversion=1.0,
    depthwise_share=0.5,
    depthwise_flop_per_cycle=0.5,
)


def product(layer: Convolution, direction: Direction) -> tuple[float, float, float]:
    """m, n, k of one layer."""
    work = lower(table([layer.work(direction)]), plain_device())
    return float(work.m[0]), float(work.n[0]), float(work.k[0])


def seconds(work: Work, device: Device, constants: ConvolutionConstants = IDEAL) -> float:
    """The time of one convolution at full shares."""
    return float(convolution_seconds(lower(table([work]), device), device, constants, np.ones(1), 1.0)[0])


def test_forward_and_gradients_permute_the_product() -> None:
    layer = Convolution(2, 16, 32, (8, 8), (5, 5), padding=(2, 2))
    assert product(layer, Direction.FORWARD) == (2 * 64, 32, 16 * 25)
    assert product(layer, Direction.INPUT_GRADIENT) == (2 * 64, 16, 32 * 25)
    assert product(layer, Direction.WEIGHT_GRADIENT) == (32, 16 * 25, 2 * 64)


def test_a_transposed_convolution_is_the_input_gradient_of_a_plain_one() -> None:
    plain = Convolution(1, 8, 16, (16, 16), (2, 2), stride=(2, 2))
    gradient = plain.work(Direction.INPUT_GRADIENT)
    dims = {
        **gradient.dims,
        "transposed": 1,
        "in_channels": 16,
        "out_channels": 8,
        "height": 8,
        "width": 8,
        "out_height": 16,
        "out_width": 16,
    }
    transposed = replace(gradient, direction=Direction.FORWARD, dims=dims)
    first, second = (lower(table([work]), plain_device()) for work in (gradient, transposed))
    assert (first.m[0], first.n[0], first.k[0]) == (second.m[0], second.n[0], second.k[0])


def test_one_full_tile_on_one_multiprocessor() -> None:
    """128 positions, 128 channels, k of 100: 2 · 128 · 128 · 100 FLOP; smaller tiles only take as long.

    Equally fast algorithms count as a little faster together: at most the eighth root of their number.
    """
    layer = Convolution(128, 100, 128, (1, 1), (1, 1))
    device = plain_device(bytes_per_second=1e12)
    full = 2 * 128 * 128 * 100
    assert full * len(TILES) ** (-1 / 8) <= seconds(layer.work(Direction.FORWARD), device) <= full


def test_a_pointwise_stride_of_two_reads_a_quarter_of_its_input() -> None:
    layer = Convolution(1, 1, 1, (8, 8), (1, 1), stride=(2, 2))
    work = lower(table([layer.work(Direction.FORWARD)]), plain_device())
    assert work.bytes[0] == 4 * (16 + 1 + 16)  # touched input, weight, output


def test_tensor_cores_take_channels_by_the_eight() -> None:
    layer = Convolution(1, 3, 64, (8, 8), (3, 3), padding=(1, 1))
    work = lower(table([layer.work(Direction.FORWARD, "float16")]), plain_device())
    assert work.k[0] == pytest.approx(8 * 9)


def test_tensor_cores_convert_the_layout_of_what_is_not_channels_last() -> None:
    """One more pass over the operands; all tiles tie, which counts for the eighth root of their number."""
    work = Convolution(1, 8, 8, (8, 8), (3, 3), padding=(1, 1)).work(Direction.FORWARD, "float16")
    last = replace(work, dims={**work.dims, "channels_last": 1})
    device = plain_device(flop_per_second=1e12)
    one_pass = (work.read_bytes + work.write_bytes) * len(TILES) ** (-1 / 8)
    assert seconds(last, device) == pytest.approx(one_pass)
    assert seconds(work, device) == pytest.approx(2 * one_pass)


def test_miopen_converts_in_kernels_of_their_own_or_takes_slower_ones_that_need_not() -> None:
    """A product in one tile, on a device where a kernel takes as long to start as the product takes."""
    work = Convolution(128, 104, 128, (1, 1), (1, 1)).work(Direction.FORWARD, "float16")
    last = replace(work, dims={**work.dims, "channels_last": 1})
    target = plain_device(bytes_per_second=1e30)
    whole = replace(IDEAL, tile_efficiency=(1.0,) + (1e-6,) * (len(TILES) - 1), conversion=0.0)
    one = seconds(last, target, whole)
    start = one * target.sheet.number("boost_clock_hertz")
    miopen = replace(whole, start_cycles=start, conversion_launches=3.0, direct=0.5)
    assert seconds(last, target, miopen) == pytest.approx(2 * one)
    # Converted: four starts and the product, five in all. As it is: one start, the product at half the rate.
    assert seconds(work, target, miopen) == pytest.approx(3 * one, rel=0.01)
    # At a quarter of the rate both take five, and a tie counts for the eighth root of two.
    assert seconds(work, target, replace(miopen, direct=0.25)) == pytest.approx(5 * one * 2 ** (-1 / 8))


def test_first_layers_in_tf32_run_on_the_lanes_of_boards_where_these_are_as_fast() -> None:
    """Tensor cores pad three channels to eight; boards for games have no more FLOP/s there than in lanes."""
    model, ampere, hopper = ConvolutionModel(), device("rtx3090ti"), device("h100-sxm")
    stem, wide = (Convolution(16, channels, 64, (256, 256), (3, 3)) for channels in (3, 64))
    for layer, target in ((stem, ampere), (wide, hopper)):
        tf32 = table([layer.work(Direction.FORWARD, "tf32")])
        lanes, priced = on_lanes_seconds(tf32, target)[0], model.seconds(tf32, target)[0]
        assert priced == pytest.approx(lanes) if target is ampere else priced < 0.7 * lanes


def test_winograd_serves_3x3_of_stride_1_in_fp32_only() -> None:
    plain, strided = (Convolution(1, 8, 8, (8, 8), (3, 3), (s, s), (1, 1)) for s in (1, 2))
    cases = [plain.work(Direction.FORWARD), strided.work(Direction.FORWARD)]
    cases.append(plain.work(Direction.FORWARD, "float16"))
    assert lower(table(cases), plain_device()).is_winograd.tolist() == [True, False, False]
    limit = least_seconds(lower(table(cases[:1]), plain_device(bytes_per_second=1e12)), plain_device())
    assert limit[0] == pytest.approx(cases[0].flop / 4)


def test_a_depthwise_convolution_is_bound_by_memory_or_its_own_share_of_peak() -> None:
    dense = Convolution(1, 32, 32, (8, 8), (3, 3), padding=(1, 1)).work(Direction.FORWARD)
    depthwise = replace(dense, dims={**dense.dims, "groups": 32}, flop=dense.flop / 32)
    slow_memory = plain_device(flop_per_second=1e12, clock_hertz=1e12)
    assert seconds(depthwise, slow_memory) == pytest.approx(depthwise.read_bytes + depthwise.write_bytes)
    fast_memory = plain_device(bytes_per_second=1e12)
    assert seconds(depthwise, fast_memory) == pytest.approx(depthwise.flop / 0.5), "half a FLOP a cycle"
    in_half = replace(depthwise, dtype="float16")
    assert seconds(in_half, fast_memory) == pytest.approx(depthwise.flop / 0.5), "half of the FP32 peak"


def test_depthwise_convolutions_in_fp32_are_bound_by_instructions() -> None:
    """KernelBench: 64 channels, 3x3, 16 images of 512x512 take 2.55 ms on an H100: 7 FLOP a cycle and SM."""
    work = convolution(
        16, 64, 64, (512, 512), (3, 3), stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=64,
        direction=Direction.FORWARD, dtype="tf32",
    )  # fmt: skip
    priced = float(ConvolutionModel().seconds(table([work]), device("h100-sxm"))[0])
    assert priced == pytest.approx(2.55e-3, rel=0.1)


def test_a_convolution_described_by_axes_equals_the_layer() -> None:
    layer = Convolution(4, 16, 32, (28, 28), (3, 3), stride=(2, 2), padding=(1, 1))
    for direction in (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT):
        same = convolution(
            4, 16, 32, (28, 28), (3, 3), stride=(2, 2), padding=(1, 1), dilation=(1, 1), groups=1,
            direction=direction, dtype="float32",
        )  # fmt: skip
        assert same == layer.work(direction)


def test_an_amd_device_takes_the_rate_of_its_kin() -> None:
    """Half the FLOP a cycle of peak at the same achieved FLOP a cycle is twice the share."""
    mi250x, mi300x = device("mi250x"), device("mi300x")
    known = [("mi300x", 0.2)]
    assert share_by_rate(mi300x, known) == 0.2
    ratio = (1307.4e12 / (304 * 2.1e9)) / (191.5e12 / (110 * 1.7e9))
    assert share_by_rate(mi250x, known) == pytest.approx(0.2 * ratio)


def layers(**fixed: Any) -> st.SearchStrategy[Convolution]:
    """Layers of all sizes."""
    channels, side = st.integers(1, 512), st.integers(7, 64)
    return st.builds(
        lambda batch, ins, outs, size, kernel, stride: Convolution(
            batch, ins, outs, (size, size), (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2)
        ),
        st.integers(1, 64), channels, channels, side, st.sampled_from([1, 3, 5, 7]), st.sampled_from([1, 2]),
        **fixed,
    )  # fmt: skip


directions = st.sampled_from([Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT])
dtypes = st.sampled_from(["float32", "float16"])


@settings(max_examples=150)
@given(layer=layers(), direction=directions, dtype=dtypes, device=st.sampled_from(GPUS))
def test_never_below_what_no_algorithm_can_beat(
    layer: Convolution, direction: Direction, dtype: str, device: Device
) -> None:
    works = table([layer.work(direction, dtype)])
    assert ConvolutionModel().seconds(works, device)[0] >= least_seconds(lower(works, device), device)[0] > 0


@settings(max_examples=200)
@given(
    layer=layers(),
    direction=directions,
    dtype=dtypes,
    device=st.sampled_from(GPUS),
    grown=st.sampled_from(["batch", "in_channels", "out_channels"]),
)
def test_twice_as_much_is_never_faster(
    layer: Convolution, direction: Direction, dtype: str, device: Device, grown: str
) -> None:
    larger = replace(layer, **{grown: 2 * getattr(layer, grown)})
    works = table([one.work(direction, dtype) for one in (layer, larger)])
    small, large = ConvolutionModel().seconds(works, device)
    assert large >= small * (1 - 1e-9)


@settings(max_examples=100)
@given(layer=layers(), direction=directions, dtype=dtypes, device=st.sampled_from(GPUS))
def test_a_device_twice_as_good_in_everything_is_never_slower(
    layer: Convolution, direction: Direction, dtype: str, device: Device
) -> None:
    works, model = table([layer.work(direction, dtype)]), ConvolutionModel()
    assert model.seconds(works, doubled(device))[0] <= model.seconds(works, device)[0] * (1 + 1e-9)


def test_calibrated_shares_are_shares() -> None:
    known = calibration()
    assert all(0.3 < share <= 1 for share in known.share_of_peak.values())
    assert np.all(np.array(known.constants.tile_efficiency) <= 1)
    for gpu in GPUS:
        assert 0.1 < known.lane_share(gpu) <= 1.2, gpu.id
        assert 0.1 < known.tensor_share(gpu) <= 1.2, gpu.id


def test_a_measured_device_keeps_its_own_shares() -> None:
    known = calibration()
    by_id = {item.id: item for item in GPUS}
    assert known.measured_on_tensor_cores == {"t4", "v100-sxm2-16gb"}
    shares = known.share_of_peak
    assert known.lane_share(by_id["t4"]) == known.tensor_share(by_id["t4"]) == shares["t4"]
    assert known.tensor_share(by_id["p100-pcie"]) != shares["p100-pcie"]


def test_kepler_has_its_own_share_of_peak_and_no_other_generation_has_it() -> None:
    known = calibration()
    assert known.lane_share(device("k80")) == known.older_share_of_peak["k80"]
    without = replace(known, older_share_of_peak={})
    assert without.lane_share(device("k80")) > 2 * known.lane_share(device("k80"))
    for name in ("m60", "v100-sxm2-16gb", "h100-sxm", "rtx4090"):
        assert known.lane_share(device(name)) == without.lane_share(device(name))


def test_a_bias_is_a_pass_over_the_result_unless_the_kernel_is_depthwise() -> None:
    v100 = device("v100-sxm2-16gb")
    bandwidth = v100.memory_bytes_per_second * streaming.calibration().share(v100)
    start = calibration().constants.start_cycles / v100.sheet.number("boost_clock_hertz")
    for groups, passes in ((1, 1), (32, 0)):
        layer = Convolution(4, 32, 32, (8, 8), (3, 3), padding=(1, 1))
        bare = layer.work(Direction.FORWARD)
        bare = replace(bare, dims={**bare.dims, "groups": groups})
        biased = replace(bare, dims={**bare.dims, "bias": 1})
        without, with_bias = ConvolutionModel().seconds(table([bare, biased]), v100)
        expected = passes * (start + 2 * 4 * (4 * 32 * 8 * 8) / bandwidth)
        assert with_bias - without == pytest.approx(expected, abs=1e-12)


def test_power_limits_what_tf32_kernels_reach_not_the_limit_of_half_precision_again() -> None:
    """On H100, whose power limits half precision, TF32 loses less by it than half precision does."""
    known, h100 = calibration(), device("h100-sxm")
    reach = tf32_reach(h100, matrix.calibration().tf32_flop_per_cycle)
    assert reach < 0.7
    assert known.tf32_share(h100) > 1.1 * known.tensor_share(h100) * reach
    assert known.tf32_share(h100) < known.tensor_share(h100)
