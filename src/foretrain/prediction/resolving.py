"""What a workload leaves open: precision by the device; framework, optimizer and weights by the layout.

People train in what their device and framework offer: BF16 on devices with BF16 tensor cores, else FP16 on
those with tensor cores, else FP32; autocast in DistributedDataParallel, FP32 master weights of modules in
half precision in FSDP and DeepSpeed, those and FP32 gradients in Megatron.

A scenario is resolved once, before it is predicted (`scenario.resolve`): all that follows from its devices is
then decided. What follows from the layout is decided where a layout becomes an evaluation (`as_stored`),
because a search compares layouts that store weights differently. What was given stays.

References: PyTorch `fsdp.MixedPrecision`; DeepSpeed `bf16`; Megatron-LM `bf16`, which sets
`accumulate_allreduce_grads_in_fp32`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from foretrain.errors import MissingData
from foretrain.facts.devices import Device
from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.strategy import MixedPrecision, active_strategies
from foretrain.workloads.options import HALF_WEIGHTS, ResolvedOptions, usual_attention
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.workloads.zoo import AttentionKind

PRECISION, WEIGHTS, FRAMEWORK, OPTIMIZER = "precision", "weights", "framework", "optimizer"
ATTENTION, FROZEN_WEIGHTS = "attention", "frozen_weights"
MEGATRON = "megatron"


def in_usual_precision(workload: Workload, devices: Iterable[Device]) -> Workload:
    """The workload in what people train in on these devices, where it leaves its precision open.

    Devices of different kinds train in the lowest common precision: FP32 if one of them has no tensor cores.
    The precision stays open, so that other devices may change it.
    """
    if PRECISION not in workload.left_open:
        return workload
    usual = {usual_precision(device) for device in devices}
    common = next(name for name in ("fp32", "fp16", "bf16") if name in usual)
    return _with_options(workload, _in_precision(workload, common))


def fix_precision(workload: Workload, precision: str | None = None) -> Workload:
    """The workload in its present precision on all devices, or in another one where it leaves that open."""
    if PRECISION not in workload.left_open:
        return workload
    options = _in_precision(workload, precision or workload.options.precision)
    return replace(workload, options=options, left_open=workload.left_open - {PRECISION})


def as_stored(workload: Workload, storage: MixedPrecision) -> Workload:
    """The workload in the framework, and with weights stored, as is usual with a layout (`storage_of`)."""
    options = _in_framework(workload, workload.options, storage)
    return _with_options(workload, _store_weights(workload, options, storage))


def _with_options(workload: Workload, options: ResolvedOptions) -> Workload:
    if options == workload.options:
        return workload
    sizes = replace(workload.sizes, attention=cast("AttentionKind", options.attention))
    return replace(workload, sizes=sizes, options=options)


def usual_precision(device: Device) -> str:
    """What people train in on a device."""
    if not device.is_gpu:
        return "fp32"
    has = (name for name in ("bf16", "fp16") if device.sheet.has(f"{name}_tensor_flop_per_second"))
    return next(has, "fp32")


def refuse_precision(device: Device, precision: str) -> None:
    """Raise `MissingData` for a precision that a GPU has no units for, with one that it has.

    PyTorch emulates BF16 on such GPUs, more slowly than FP32, or refuses to train in it.
    """
    if device.is_gpu and precision in ("bf16", "fp8"):
        units = (f"{precision}_tensor_flop_per_second", f"{precision}_flop_per_second")
        if not any(map(device.sheet.has, units)):
            raise MissingData(
                f"{device.id} has no {precision.upper()}; use `precision` {usual_precision(device)}"
            )


def storage_of(layout: Layout) -> MixedPrecision:
    """How a layout usually stores weights in half precision."""
    return max(each.mixed_precision(layout) for each in active_strategies(layout))


def _in_precision(workload: Workload, precision: str) -> ResolvedOptions:
    options, half = workload.options, HALF_WEIGHTS.get(precision)
    if precision == options.precision:
        return options
    if half is not None and FROZEN_WEIGHTS in workload.left_open:  # of LoRA's base: stored in half precision
        return replace(options, precision=precision, weights=half)
    return replace(options, precision=precision)


def _in_framework(workload: Workload, options: ResolvedOptions, storage: MixedPrecision) -> ResolvedOptions:
    """Options in the framework that people use for such layouts.

    Tensor, pipeline, context and expert parallelism are Megatron's; all else is plain PyTorch. A framework
    that was named brings its optimizer; one that follows from the layout leaves it, so that layouts compare.
    """
    if FRAMEWORK in workload.left_open:
        usual = MEGATRON if storage is MixedPrecision.FP32_GRADIENTS else PLAIN
        return _with_attention(workload, replace(options, framework=usual))
    own = frameworks()[options.framework].optimizer
    if own is None or OPTIMIZER not in workload.left_open or options.optimizer is None or options.offload:
        return options
    return replace(options, optimizer=own)


def _with_attention(workload: Workload, options: ResolvedOptions) -> ResolvedOptions:
    """Options with the attention of their framework in the year of its software."""
    if options.software_year is None or ATTENTION not in workload.left_open:
        return options
    if not workload.source.has_attention:
        return options
    return replace(options, attention=usual_attention(None, options.framework, options.software_year))


def _store_weights(workload: Workload, options: ResolvedOptions, storage: MixedPrecision) -> ResolvedOptions:
    """Options with weights stored as the layout does it, or the framework where that keeps more."""
    own = frameworks()[options.framework].mixed_precision
    how = max(storage, MixedPrecision[own]) if own else storage
    if WEIGHTS not in workload.left_open:
        return options
    half = HALF_WEIGHTS.get(options.precision)
    if half is None or how is MixedPrecision.AUTOCAST:
        return replace(options, weights="fp32", master_weights=False, gradients=None, half_outputs=False)
    return replace(
        options,
        weights=half,
        master_weights=True,
        gradients="fp32" if how is MixedPrecision.FP32_GRADIENTS and half == "bf16" else None,
        half_outputs=how is MixedPrecision.MASTER_WEIGHTS,
    )
