"""The model of matrix products: hand-derived times, what must hold on any device, and its calibration."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calibration.datasets.works import product
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_devices import doubled, plain_device

from foretrain.facts.devices import Device, device, devices, with_watts
from foretrain.facts.sheets import data_root
from foretrain.prediction.operators import matrix
from foretrain.prediction.operators.matrix import (
    TILES,
    MatrixModel,
    PowerLimit,
    ProductConstants,
    TrainingPower,
    calibration,
    headroom,
    modelled_seconds,
    product_seconds,
    products,
    seconds_of,
    silicon_year,
    tf32_reach,
    unit_of,
)
from foretrain.prediction.operators.pricing import Knowledge, roofline_seconds, table
from foretrain.workloads.ops import Direction, Kind, Work

ONE_TILE = tuple(1.0 if tile == (128, 128) else 1e-6 for tile in TILES)
IDEAL = ProductConstants(0.0, ONE_TILE, ONE_TILE, 0.0, 1.0, 1e9, 1e30)
GPUS = tuple(item for item in devices().values() if item.is_gpu)
UNCORRECTED = tuple(
    item
    for item in GPUS
    if not any(
        matrix.correction_key(unit, item, is_plain=False) in matrix.calibration().corrections
        for unit in ("lanes", "tensor")
    )
)
SIZES = st.sampled_from([8, 64, 96, 128, 512, 1000, 1024, 4096, 11008])


def seconds(work: Work, device: Device, constants: ProductConstants = IDEAL, share: float = 1.0) -> float:
    """The time of one work."""
    return float(product_seconds(products(table([work]), device), device, constants, share, 1.0)[0])


def test_groups_split_rows_or_the_dimension_summed_over() -> None:
    dims = {"batch": 1, "m": 1024, "n": 512, "k": 4096, "groups": 4}
    forward = Work(Kind.MATMUL, Direction.FORWARD, dims, "bfloat16", 2.0 * 1024 * 512 * 4096, 1.0, 1.0)
    both = products(
        table([forward, replace(forward, direction=Direction.WEIGHT_GRADIENT)]), device("h100-sxm")
    )
    assert both.batch.tolist() == [4, 4]
    assert both.m.tolist() == [256, 1024]
    assert both.k.tolist() == [4096, 1024]


def priced(work: Work, device: Device) -> float:
    """The time that the shipped model predicts in training."""
    return float(MatrixModel().seconds(table([work]), device)[0])


def benchmarked(work: Work, device: Device) -> float:
    """The time that the shipped model predicts of one kernel."""
    return float(MatrixModel(calibration().of_single_kernels()).seconds(table([work]), device)[0])


def linear(m: int, n: int, k: int, dtype: str = "float32") -> Work:
    """A linear layer."""
    return product(1, m, n, k, dtype, is_linear=True)


def test_one_full_tile_takes_its_flop() -> None:
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    assert seconds(linear(128, 128, 4), device) == pytest.approx(2 * 128 * 128 * 4)


def test_a_tile_begun_is_a_tile_paid() -> None:
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    assert seconds(linear(129, 128, 4), device) == pytest.approx(2 * 256 * 128 * 4)


def test_a_wave_begun_is_a_wave_paid() -> None:
    """Three tiles on two SMs take two waves; a device of two SMs does 1 FLOP/s, so one SM half of that."""
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30, sm_count=2)
    assert seconds(linear(3 * 128, 128, 4), device) == pytest.approx(2 * 2 * 128 * 128 * 4 * 2)


def test_a_wide_tile_is_fed_with_fewer_bytes() -> None:
    """A product of 256 x 256 x 4 in two tiles of 256 x 128 reads 2 · 384 · 4 items, in one of 256 x 256 only
    512 · 4; the cache delivers one byte a cycle.
    """
    device = plain_device(flop_per_second=1e30, bytes_per_second=1e30)
    narrow = (1.0,) + (1e-40,) * (len(TILES) - 1)
    fed = replace(IDEAL, tile_efficiency=narrow, plain_efficiency=narrow, cache_bytes_per_cycle=1.0)
    wide = replace(fed, tile_efficiency=(*narrow, 1.0), plain_efficiency=(*narrow, 1.0))
    clock = device.sheet.number("boost_clock_hertz")
    assert seconds(linear(256, 256, 4), device, fed) * clock == pytest.approx(2 * 384 * 4 * 4)
    assert seconds(linear(256, 256, 4), device, wide) * clock == pytest.approx(512 * 4 * 4, rel=0.01)


def test_half_the_share_takes_twice_as_long() -> None:
    device = plain_device(bytes_per_second=1e30)
    work = linear(128, 128, 4)
    assert seconds(work, device, share=0.5) == pytest.approx(2 * seconds(work, device))


def test_a_thin_product_moves_its_bytes() -> None:
    device = plain_device(flop_per_second=1e30, bytes_per_second=2.0)
    assert seconds(linear(1, 2, 3), device) == pytest.approx(4 * (3 + 6 + 2) / 2.0)


def test_a_long_sum_of_one_tile_is_split_over_idle_multiprocessors() -> None:
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30, sm_count=4)
    split = replace(IDEAL, least_split=1.0)
    work = linear(128, 128, 400)
    assert seconds(work, device, split) == pytest.approx(seconds(work, device) / 4)


def test_every_kernel_starts_after_some_cycles() -> None:
    device = plain_device(flop_per_second=1e30, bytes_per_second=1e30, clock_hertz=10.0)
    assert seconds(linear(1, 1, 1), device, replace(IDEAL, start_cycles=50.0)) == pytest.approx(5.0)


def test_power_bounds_the_share() -> None:
    """70 W for 8.1 TFLOP/s are 8.64 pJ a FLOP; at that very cost the share is 1 / sqrt(2)."""
    t4 = device("t4")  # of 2018
    assert headroom(t4, "lanes") == pytest.approx(70 / 8.1e12)
    assert PowerLimit(1.0, 70 / 8.1e12, 0.1).share(t4, "lanes") == pytest.approx(0.5**0.5)
    assert PowerLimit(0.9, 1e-20, 0.1).share(t4, "lanes") == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [("float32", "lanes"), ("tf32", "tf32"), ("bfloat16", "tensor"), ("float8_e4m3fn", "fp8")],
)
def test_types_run_on_their_units(dtype: str, unit: str) -> None:
    assert unit_of(dtype) == unit


def test_a_throttled_board_is_recognised_by_its_power() -> None:
    """A T4 may spend half the energy per FLOP of a V100, which follows from the data sheets alone."""
    lanes = calibration().units["lanes"]
    assert lanes.expected(device("t4")) < 0.75 * lanes.expected(device("v100-pcie-32gb"))


def test_an_unmeasured_device_takes_the_energy_of_its_silicon() -> None:
    """A twin at 0.6 of a ceiling of 1 spends 4/3 of its power for a FLOP: 1 / sqrt(1 + (4/3)²) = 0.6.

    The RTX 4090 has 450 W for 165.2 TFLOP/s, the L40S 350 W for 362.05.
    """
    ada, geforce = device("l40s"), device("rtx4090")
    limit = PowerLimit(ceiling=1.0, joules_per_flop=1e-12, decline=0.0)
    power = headroom(geforce, "tensor") / headroom(ada, "tensor")
    expected = 1 / (1 + (4 / 3 / power) ** 2) ** 0.5
    assert limit.of_twin(geforce, ada, 0.6, "tensor") == pytest.approx(expected)
    assert limit.of_twin(ada, ada, 0.6, "tensor") == pytest.approx(0.6)
    assert limit.of_twin(geforce, ada, 1.1, "tensor") == pytest.approx(1.1)
    tensor = calibration().units["tensor"]
    assert tensor.shares["l40s"] < tensor.share(device("rtx6000ada")) + 0.1 < tensor.share(geforce) + 0.1


def test_kernels_depart_from_the_model_as_on_the_measured_twin() -> None:
    """No correction of an RTX 4090 comes from shares of peak beyond those that the L40S has shown."""
    known, geforce, ada = calibration(), device("rtx4090"), device("l40s")
    assert known.units["tensor"].measured_twin(geforce) is ada
    assert known.units["tensor"].measured_twin(ada) is ada
    large = table([linear(32768, 4096, 2048, "bfloat16")])
    corrected = {
        target.id: seconds_of(products(large, target), ["tensor"], target, known)
        / modelled_seconds(products(large, target), ["tensor"], target, known)
        for target in (geforce, ada)
    }
    assert corrected["rtx4090"] == pytest.approx(corrected["l40s"])


def test_the_same_silicon_has_the_same_share() -> None:
    """H100 and H200 are one chip at one power; the H200 came two years later."""
    h100, h200 = device("h100-sxm"), device("h200-sxm")
    assert silicon_year(h200) == silicon_year(h100) == 2022
    fp8 = calibration().units["fp8"]
    assert "h100-sxm" not in fp8.shares
    assert fp8.share(h100) == pytest.approx(fp8.share(h200))


def test_tf32_falls_behind_where_tensor_cores_outrun_their_instructions() -> None:
    """At R = R0 TF32 reaches 2^(-1/3) of half precision: an A100 does 1,024 TF32 FLOP a cycle and SM."""
    a100 = device("a100-sxm-80gb")
    rate = 156e12 / (108 * 1410e6)
    assert tf32_reach(a100, rate) == pytest.approx(2 ** (-1 / 3), rel=1e-3)
    reach = {
        name: tf32_reach(device(name), 1200.0) for name in ("rtx3090", "a100-sxm-80gb", "h100-sxm", "b200")
    }
    assert reach["rtx3090"] > 0.97
    assert 0.8 < reach["a100-sxm-80gb"] < 0.9
    assert 0.5 < reach["h100-sxm"] < 0.65
    assert reach["b200"] < reach["h100-sxm"]
    assert tf32_reach(device("v100-sxm2-16gb"), 1200.0) == 1.0, "no TF32: FP32 lanes"


def test_large_tf32_products_run_at_the_published_shares() -> None:
    """Megatron-DeepSpeed layers in TF32 (Sailor) reach about 0.70 of peak on A100 and 0.40 on Hopper."""
    for name, low, high in (("a100-sxm-80gb", 0.6, 0.75), ("h100-sxm", 0.35, 0.48)):
        work = linear(16384, 8192, 8192, "tf32")
        limit = float(roofline_seconds(table([work]), device(name))[0])
        assert low < limit / priced(work, device(name)) < high


def test_training_sustains_what_power_allows() -> None:
    """A T4 has 70 W for 65 TFLOP/s: 1.08 pJ a FLOP. Where a FLOP takes just that, a benchmark's full peak
    becomes 2^(-1/4) of it; where it takes ten times as much, a tenth."""
    t4 = device("t4")  # of 2018
    at_limit = TrainingPower(70 / 65e12, 0.1, 0.5)
    assert at_limit.sustained(1.0, t4, "tensor") == pytest.approx(2**-0.25)
    assert TrainingPower(700 / 65e12, 0.1, 0.5).sustained(1.0, t4, "tensor") == pytest.approx(0.1, rel=1e-4)
    assert TrainingPower(1e-20, 0.1, 0.5).sustained(0.8, t4, "tensor") == pytest.approx(0.8)


def test_the_energy_of_a_flop_falls_with_the_year_and_with_the_bits() -> None:
    power = TrainingPower(2e-12, 0.1, 0.5)
    assert power.joules(device("t4"), "tensor") == pytest.approx(2e-12)
    assert power.joules(device("h200-sxm"), "tensor") == pytest.approx(2e-12 * math.exp(-0.4)), "H100's chip"
    assert power.joules(device("h100-sxm"), "fp8") == pytest.approx(1e-12 * math.exp(-0.4))


def test_fewer_watts_lower_the_share_in_training() -> None:
    """An A100 at 250 W instead of 400 W has 0.625 of the joules for a FLOP; one kernel does not feel it."""
    known, a100 = calibration(), device("a100-sxm-80gb")
    limited, kernels = with_watts(a100, 250.0), known.of_single_kernels()
    assert known.training is not None
    benchmark_share = known.units["tensor"].shares[a100.id]
    sustained = known.training.sustained(benchmark_share, limited, "tensor")
    assert known.share("tensor", limited) == pytest.approx(sustained)
    assert known.share("tensor", limited) < known.share("tensor", a100) < kernels.share("tensor", a100)
    assert known.share("tensor", with_watts(a100, 400.0)) == known.share("tensor", a100)


def test_corrections_of_training_sized_products_are_small() -> None:
    """Products of 10^12 FLOP and more are in the range of the measurements and near the model's own rate."""
    for name in ("a100-sxm-80gb", "h100-sxm", "b200", "l40s", "a40"):
        target = device(name)
        work = products(
            table(
                [
                    linear(m, n, k, "bfloat16")
                    for m in (8192, 65536)
                    for n in (8192, 28672)
                    for k in (8192, 16384)
                ]
            ),
            target,
        )
        modelled = modelled_seconds(work, ["tensor"] * len(work), target)
        forest = matrix.calibration().corrections[matrix.correction_key("tensor", target, is_plain=False)]
        ratio = matrix.tree_correction(forest, work, target, modelled)
        assert np.all((ratio > 0.8) & (ratio < 1.25)), (name, ratio)


@settings(max_examples=60)
@given(st.sampled_from(GPUS), SIZES, SIZES, SIZES, st.sampled_from(["float32", "float16"]))
def test_never_below_the_roofline(target: Device, m: int, n: int, k: int, dtype: str) -> None:
    work = linear(m, n, k, dtype)
    assert priced(work, target) >= float(roofline_seconds(table([work]), target)[0])


@settings(max_examples=60)
@given(st.sampled_from(UNCORRECTED), SIZES, SIZES, SIZES, st.sampled_from(["float32", "float16"]))
def test_twice_the_size_is_never_faster(target: Device, m: int, n: int, k: int, dtype: str) -> None:
    once = priced(linear(m, n, k, dtype), target)
    for larger in ((2 * m, n, k), (m, 2 * n, k), (m, n, 2 * k)):
        assert priced(linear(*larger, dtype), target) >= once * (1 - 1e-9)


@settings(max_examples=60)
@given(st.sampled_from(UNCORRECTED), SIZES, SIZES, SIZES, st.sampled_from(["float32", "float16"]))
def test_twice_the_device_is_never_slower(target: Device, m: int, n: int, k: int, dtype: str) -> None:
    work = linear(m, n, k, dtype)
    assert priced(work, doubled(target)) <= priced(work, target) * (1 + 1e-9)


def test_measured_devices_are_calibrated_and_others_extrapolated() -> None:
    model = MatrixModel()
    assert model.confidence(linear(1, 1, 1).kind, device("v100-pcie-32gb")).knowledge is Knowledge.CALIBRATED
    assert model.confidence(linear(1, 1, 1).kind, device("rtx3090")).knowledge is Knowledge.EXTRAPOLATED


def test_measured_speed_of_large_products() -> None:
    """Large products: 69-78 % of peak on H200 in BF16 (aiconfigurator), 79-99 % on V100 (NeuSight)."""
    for name, dtype, low, high in (
        ("h200-sxm", "bfloat16", 0.65, 0.82),
        ("v100-pcie-32gb", "float32", 0.79, 1.0),
    ):
        work = linear(8192, 8192, 8192, dtype)
        limit = float(roofline_seconds(table([work]), device(name))[0])
        assert low < limit / benchmarked(work, device(name)) <= high


def test_corrections_are_bounded() -> None:
    target = device("a100-pcie-40gb")
    work = products(table([linear(777, 555, 333), linear(64, 64, 64)]), target)
    modelled = np.array([1e-4, 1e-5])
    forest = matrix.calibration().corrections["lanes:8.0:layer"]
    ratio = matrix.tree_correction(forest, work, target, modelled)
    assert np.all(np.abs(np.log(ratio)) <= matrix.CORRECTION_BOUND + 1e-9)


@pytest.mark.parametrize("name", ["a100-pcie-40gb", "v100-pcie-32gb", "h100-sxm", "b200"])
def test_twice_the_size_is_hardly_ever_faster_even_when_corrected(name: str) -> None:
    """Libraries do run some shapes faster than smaller ones; the corrections learn that too."""
    sizes = (64, 128, 256, 512, 1024, 2048, 4096)
    dtype = "float32" if "pcie" in name else "bfloat16"
    shapes = [(m, n, k) for m in sizes for n in sizes for k in sizes]
    once = MatrixModel().seconds(table([linear(m, n, k, dtype) for m, n, k in shapes]), device(name))
    twice = MatrixModel().seconds(table([linear(2 * m, n, k, dtype) for m, n, k in shapes]), device(name))
    assert np.mean(twice < once) < 0.1
    assert np.quantile(twice / once, 0.05) > 0.95


def test_a_layer_without_bias_runs_as_the_faster_of_a_layer_and_a_plain_product() -> None:
    device = plain_device(flop_per_second=1.0, bytes_per_second=1e30)
    twice = replace(IDEAL, plain_efficiency=tuple(0.5 * each for each in ONE_TILE))
    half = replace(IDEAL, tile_efficiency=tuple(0.5 * each for each in ONE_TILE))
    bare, biased = (product(1, 128, 128, 4, "float32", is_linear=True, has_bias=has) for has in (False, True))
    for constants in (twice, half):
        assert seconds(bare, device, constants) == pytest.approx(2 * 128 * 128 * 4)
    assert seconds(biased, device, half) == pytest.approx(2 * 2 * 128 * 128 * 4)


def test_a_bare_layer_is_never_slower_than_one_with_a_bias() -> None:
    for name in ("p100-pcie", "v100-pcie-32gb", "a100-pcie-40gb", "h100-sxm"):
        for m, n, k in ((4096, 50257, 1280), (64, 1024, 16384), (512, 4096, 1024)):
            bare, biased = (product(1, m, n, k, "float32", True, has_bias=has) for has in (False, True))
            assert priced(bare, device(name)) <= priced(biased, device(name))


def test_logits_of_a_vocabulary_come_near_the_peak() -> None:
    """NeuSight timed 4096 x 50257 x 1280 at 62.7 ms on a P100 and 38.9 ms on a V100, inside a layer."""
    logits = product(1, 4096, 50257, 1280, "float32", is_linear=True)
    assert priced(logits, device("p100-pcie")) == pytest.approx(62.7e-3, rel=0.1)
    assert priced(logits, device("v100-pcie-32gb")) == pytest.approx(38.9e-3, rel=0.1)


def test_a_device_left_out_is_predicted_from_its_data_sheet() -> None:
    known, target = calibration(), device("v100-pcie-32gb")
    forgetful = known.without(target)
    assert known.is_measured(target)
    assert not forgetful.is_measured(target)
    assert not forgetful.is_measured(device("v100-sxm2-16gb")), "the same family"
    assert forgetful.is_measured(device("t4"))
    assert not any(":7.0:" in name for name in forgetful.corrections)
    trust = MatrixModel(forgetful).confidence(Kind.LINEAR, target)
    assert trust.knowledge is Knowledge.EXTRAPOLATED


def test_a_bias_costs_layers_nothing_on_kernels_after_pascal_that_were_not_measured() -> None:
    bare = product(1, 1024, 8192, 8192, "float32", True)
    biased = replace(bare, dims={**bare.dims, "bias": 1})
    for name in ("h100-sxm", "rtx4090"):
        without, with_bias = MatrixModel().seconds(table([bare, biased]), device(name))
        assert with_bias == without
    without, with_bias = MatrixModel().seconds(table([bare, biased]), device("p100-pcie"))
    assert with_bias > without


_SOURCES = {
    "cudnn_frontend",
    "neusight",
    "aiconfigurator",
    "deepbench",
    "vidur",
    "estimate_train_time",
    "aiter",
}
FILES = ("products.json", "attention.json", "recurrent.json")


def content(name: str) -> dict[str, Any]:
    """A calibration file."""
    read: dict[str, Any] = json.loads((data_root() / "calibrations" / name).read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize("name", FILES)
def test_states_its_format_software_and_data(name: str) -> None:
    stored = content(name)
    assert stored["format"] == 1
    assert {"python", "numpy"} <= stored["software"].keys()
    for data in stored["data"]:
        assert data["source"] in _SOURCES
        assert all(count > 50 for count in data["measurements"].values())
        assert all(device_id in devices() for device_id in data["measurements"])


@pytest.mark.parametrize("name", FILES)
def test_residuals_are_ordered_and_wider_for_unseen_devices(name: str) -> None:
    seen, unseen = (content(name)["residuals"][split] for split in ("seen", "unseen"))
    for spread in (seen, unseen):
        assert 0 < spread["p10"] < spread["p50"] < spread["p90"] < 3
        assert spread["cases"] > 1000
    assert unseen["p90"] / unseen["p10"] > seen["p90"] / seen["p10"]


def test_shares_of_peak_are_of_measured_devices_and_sane() -> None:
    measured = {name for data in content("products.json")["data"] for name in data["measurements"]}
    for unit in matrix.calibration().units.values():
        assert set(unit.shares) <= measured
        assert all(0.2 < share < 1.4 for share in unit.shares.values())


def test_corrections_are_of_measured_kernels() -> None:
    known = {
        matrix.correction_key(name, devices()[device_id], is_plain)
        for name, unit in matrix.calibration().units.items()
        for device_id in unit.shares
        for is_plain in (False, True)
    }
    assert set(matrix.calibration().corrections) <= known


def test_calibrations_are_small() -> None:
    folder = data_root() / "calibrations"
    for name in (*FILES, matrix.TREES):
        assert len((folder / name).read_bytes()) < 1_000_000
