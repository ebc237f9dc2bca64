"""What a request leaves open: precision by the device, storage of weights by the strategy."""

import pytest

from foretrain.facts.devices import device
from foretrain.prediction.scenario import (
    as_stored,
    fix_precision,
    in_usual_precision,
    storage_of,
    usual_precision,
)
from foretrain.prediction.strategies.strategy import MixedPrecision, layout_of
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, graph_of, workload_of


def _open(**given: object) -> Workload:
    return workload_of(WorkloadRequest("mnist-cnn", batch=4, **given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "precision"),
    [("a100-sxm-80gb", "bf16"), ("v100-sxm2-16gb", "fp16"), ("gtx1080ti", "fp32"), ("k80", "fp32")],
)
def test_people_train_in_the_best_half_precision_that_a_device_has(name: str, precision: str) -> None:
    assert usual_precision(device(name)) == precision
    assert in_usual_precision(_open(), (device(name),)).options.precision == precision
    assert in_usual_precision(_open(precision="tf32"), (device(name),)).options.precision == "tf32"


def test_master_weights_and_lora_in_fp8_store_bf16() -> None:
    """As the help of `weights` says: half precision for both, of which FP8 computes from BF16."""
    assert _open(precision="fp8", master_weights=True).options.weights == "bf16"
    assert _open(precision="fp8", lora="r=4").options.weights == "bf16"
    assert _open(precision="fp16", master_weights=True).options.weights == "fp16"
    assert _open(precision="fp8").options.weights == "fp32"


def test_different_devices_train_in_what_all_of_them_have() -> None:
    mixed = (device("a100-sxm-80gb"), device("v100-sxm2-16gb"))
    assert in_usual_precision(_open(), mixed).options.precision == "fp16"
    assert in_usual_precision(_open(), (*mixed, device("gtx1080ti"))).options.precision == "fp32"
    fixed = fix_precision(in_usual_precision(_open(), mixed))
    assert in_usual_precision(fixed, mixed[:1]).options.precision == "fp16"


@pytest.mark.parametrize(
    ("strategy", "how"),
    [
        ("ddp", MixedPrecision.AUTOCAST),
        ("ps-sync", MixedPrecision.AUTOCAST),
        ("fsdp", MixedPrecision.MASTER_WEIGHTS),
        ("zero1", MixedPrecision.MASTER_WEIGHTS),
        ("hsdp", MixedPrecision.MASTER_WEIGHTS),
        ("tp=2,dp=4", MixedPrecision.FP32_GRADIENTS),
        ("pp=2,dp=4,zero=1", MixedPrecision.FP32_GRADIENTS),
    ],
)
def test_a_strategy_stores_weights_as_its_frameworks_do(strategy: str, how: MixedPrecision) -> None:
    layout = layout_of(strategy, 8, 4)
    assert storage_of(layout) is how
    options = as_stored(_open(precision="bf16"), storage_of(layout)).options
    assert options.master_weights == (how is not MixedPrecision.AUTOCAST)
    assert options.weights == ("fp32" if how is MixedPrecision.AUTOCAST else "bf16")
    assert options.adds_up_in_fp32 == (how is MixedPrecision.FP32_GRADIENTS)


def test_what_is_given_stays_and_full_precision_has_no_copies() -> None:
    sharded = layout_of("fsdp", 8, 8)
    assert as_stored(_open(precision="bf16", weights="fp32"), storage_of(sharded)).options.weights == "fp32"
    assert as_stored(_open(precision="fp32"), storage_of(sharded)).options.weights == "fp32"
    assert as_stored(_open(precision="fp8"), storage_of(sharded)).options.weights == "bf16"
    assert (
        as_stored(_open(precision="fp16"), storage_of(layout_of("tp=2,dp=4", 8, 8))).options.gradients is None
    )


def test_master_weights_in_fp8_are_the_same_sharded_or_not() -> None:
    """`--master-weights` keeps FP32 copies of half-precision weights, whatever the strategy."""
    asked = _open(precision="fp8", master_weights=True)
    for strategy in ("ddp", "fsdp", "zero1"):
        options = as_stored(asked, storage_of(layout_of(strategy, 8, 8))).options
        assert (options.weights, options.master_weights) == ("bf16", True)


def test_one_device_shards_nothing() -> None:
    assert storage_of(layout_of("fsdp", 1, 1)) is MixedPrecision.AUTOCAST


def test_a_step_in_fp16_is_that_in_bf16_with_another_type() -> None:
    half, brain = (graph_of(_open(precision=name)) for name in ("fp16", "bf16"))
    assert half.calls == brain.calls
    assert {spec.dtype for spec in half.specs} - {spec.dtype for spec in brain.specs} == {"float16"}
    assert [spec.bytes for spec in half.specs] == [spec.bytes for spec in brain.specs]
    assert half.options.precision == "fp16"


@pytest.mark.parametrize(("given", "stored"), [(None, "bf16"), ("fp32", "fp32")])
def test_a_frozen_base_is_stored_in_half_precision_unless_weights_are_given(
    given: str | None, stored: str
) -> None:
    adapted = workload_of(WorkloadRequest("gpt2", lora="r=16", weights=given))
    assert in_usual_precision(adapted, (device("h100-sxm"),)).options.weights == stored
