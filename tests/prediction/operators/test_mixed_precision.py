"""What whole steps teach about steps in mixed precision."""

from __future__ import annotations

import numpy as np
import pytest

from foretrain.facts.devices import device
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.operators.matrix import headroom
from foretrain.prediction.operators.mixed_precision import (
    calibration,
    choose_correction,
    correct_prices,
    factors,
    power_factors,
    step_weight,
    sustained_share,
)
from foretrain.prediction.operators.pricing import Knowledge, PricedOps, listing_of, operator_models, price
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import Kind
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_of, workload_of


def graph(precision: str = "fp16", compiled: bool = False) -> Graph:
    """A small convolutional network in channels-last layout."""
    request = WorkloadRequest(
        "cifar-resnet20",
        batch=64,
        precision=precision,
        channels_last=True,
        optimizer="momentum",
        compile=compiled,
    )
    return graph_of(workload_of(request))


def priced(device_id: str) -> PricedOps:
    """Its operators before any correction."""
    target = device(device_id)
    return price(operators(graph()), target, operator_models(target))


@pytest.mark.parametrize("device_id", ["rtx3090", "rtx4090", "h100-sxm", "v100-sxm2-16gb"])
def test_nothing_is_predicted_faster_than_the_roofline(device_id: str) -> None:
    """However small a factor, the limits of the device hold for every operator."""
    before = priced(device_id)
    after = correct_prices(before, device(device_id))
    assert (after.seconds >= np.maximum(before.computing, before.moving)).all()
    assert not np.array_equal(after.seconds, before.seconds)


def test_products_of_a_measured_device_are_believed() -> None:
    """Where single products were measured, whole steps of another GPU do not overrule them."""
    before = priced("h100-sxm")
    corrections = factors(before, device("h100-sxm"), calibration())
    for op, factor in zip(before.ops, corrections, strict=True):
        if op.work.kind in (Kind.LINEAR, Kind.MATMUL):
            assert factor == 1.0
    elsewhere = factors(priced("rtx4090"), device("rtx4090"), calibration())
    assert not np.array_equal(corrections, elsewhere)


def test_what_a_step_rests_on() -> None:
    """The GPU the steps were measured on is calibrated, another one extrapolated, with a wider interval."""
    seen, unseen = (correct_prices(priced(name), device(name)).confidence for name in ("rtx3090", "rtx4090"))
    assert {trust.knowledge for trust in seen.values()} == {Knowledge.CALIBRATED}
    assert {trust.knowledge for trust in unseen.values()} == {Knowledge.EXTRAPOLATED}
    for trust in (*seen.values(), *unseen.values()):
        assert 0 < trust.p10 < trust.p90


def test_only_half_precision_on_tensor_cores_is_corrected() -> None:
    """Other steps were measured by their kernels."""
    assert choose_correction(graph(), device("rtx3090")) is correct_prices
    assert choose_correction(graph("bf16"), device("h100-sxm")) is correct_prices
    assert choose_correction(graph("fp32"), device("rtx3090")) is None
    assert choose_correction(graph(), device("gtx1080ti")) is None


def test_a_compiled_step_is_extrapolated_and_no_slower() -> None:
    """Its kernels are corrected like others; whole compiled steps were never measured."""
    eager, compiled = (
        OperatorCostModel().estimate(graph(compiled=flag), device("rtx3090")) for flag in (False, True)
    )
    assert compiled.knowledge is Knowledge.EXTRAPOLATED
    assert compiled.device_seconds < eager.device_seconds


def test_the_step_is_predicted_with_the_correction() -> None:
    """`predict`'s own model uses it."""
    step = OperatorCostModel().estimate(graph(), device("rtx3090"))
    assert "calibrations/mixed_precision.json" in step.estimate.sources
    assert step.device_seconds == pytest.approx(
        float(correct_prices(priced("rtx3090"), device("rtx3090")).seconds.sum())
    )


def test_the_factor_of_a_step_leaves_language_models_alone() -> None:
    """Factors were fitted to vision models: kernels of a language model are priced as they were measured."""
    request = WorkloadRequest("gpt2-small", batch=2, seq_len=64, precision="fp16")
    target = device("a100-sxm-80gb")
    before = price(operators(graph_of(workload_of(request))), target, operator_models(target))
    after = correct_prices(before, target)
    assert step_weight(before, before.seconds, target, calibration()) == 0.0
    np.testing.assert_array_equal(after.seconds, before.seconds)


def test_the_factor_of_a_step_grows_with_the_share_of_convolutions() -> None:
    """Half of the share at which it applies in full: half of its logarithm."""
    before, target = priced("rtx4090"), device("rtx4090")
    names, places = before.listing.classes
    is_vision = np.array(["convolution" in names[place] or "batch" in names[place] for place in places])
    is_vision |= np.array(["pooling" in names[place] or "resample" in names[place] for place in places])
    is_vision &= places >= 0
    seconds = np.where(is_vision, 0.125 / is_vision.sum(), 0.875 / (~is_vision).sum())
    assert step_weight(before, seconds, target, calibration()) == pytest.approx(0.5)
    assert step_weight(before, seconds, device("rtx3090"), calibration()) == 1.0


def test_a_board_for_graphics_sustains_what_its_power_allows() -> None:
    # 1.5 pJ available and 2 pJ needed for a FLOP: 1 / sqrt(1 + (2 / 1.5)^2) = 0.6
    energy = headroom(device("rtx4090"), "tensor") * 4 / 3
    assert sustained_share(device("rtx4090"), energy) == pytest.approx(0.6)


def test_half_the_power_slows_products_and_leaves_other_kernels_alone() -> None:
    listing = listing_of(graph())
    known = calibration()
    full, half = (
        power_factors(listing, device(name), known.devices, known.joules_per_flop)
        for name in ("rtxpro6000-ws", "rtxpro6000-maxq")
    )
    assert (half >= full).all()
    assert (half > full).any()
    assert (half == 1.0).any()
    fitted = power_factors(listing, device("rtx3090"), known.devices, known.joules_per_flop)
    assert fitted == pytest.approx(1.0)
    assert (power_factors(listing, device("h100-sxm"), known.devices, known.joules_per_flop) == 1.0).all()
