"""What a workload leaves open: precision by the device, storage of weights by the strategy.

People train in what their device and framework offer: BF16 on devices with BF16 tensor cores, else FP16 on
those with tensor cores, else FP32; autocast in DistributedDataParallel, FP32 master weights of modules in
half precision in FSDP and DeepSpeed, those and FP32 gradients in Megatron.

References: PyTorch `fsdp.MixedPrecision`; DeepSpeed `bf16`; Megatron-LM `bf16`, which sets
`accumulate_allreduce_grads_in_fp32`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from foretrain.facts.devices import Device
from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.strategy import MixedPrecision, active_strategies
from foretrain.workloads.options import usual_attention
from foretrain.workloads.workload import Workload

if TYPE_CHECKING:
    from foretrain.workloads.zoo import AttentionKind

PRECISION, WEIGHTS, FRAMEWORK, OPTIMIZER = "precision", "weights", "framework", "optimizer"
ATTENTION = "attention"
MEGATRON = "megatron"
_HALF = {"bf16": "bf16", "fp16": "fp16", "fp8": "bf16"}
"""What weights are in where products are computed in half precision or FP8."""


def usual_precision(device: Device) -> str:
    """What people train in on a device."""
    if device.kind != "gpu":
        return "fp32"
    has = (name for name in ("bf16", "fp16") if device.sheet.has(f"{name}_tensor_flop_per_second"))
    return next(has, "fp32")


def on_devices(workload: Workload, devices: Iterable[Device], only: str | None = None) -> Workload:
    """The workload in the usual precision of devices, or in `only` that one, unless precision was given.

    Devices of different kinds train in the lowest common one: FP32 if one of them has no tensor cores.
    """
    if PRECISION not in workload.left_open:
        return workload
    usual = {only} if only else {usual_precision(device) for device in devices}
    common = next(name for name in ("fp32", "fp16", "bf16") if name in usual)
    options, half = workload.options, _HALF.get(common)
    if half is not None and workload.lora is not None:  # a frozen base is stored in half precision
        return replace(workload, options=replace(options, precision=common, weights=half))
    return replace(workload, options=replace(options, precision=common))


def fixed_precision(workload: Workload) -> Workload:
    """The workload in its present precision on all devices."""
    return replace(workload, left_open=workload.left_open - {PRECISION})


def mixed_precision(layout: Layout) -> MixedPrecision:
    """How a layout usually trains in half precision."""
    return max(each.mixed_precision(layout) for each in active_strategies(layout))


def under(workload: Workload, layout: Layout) -> Workload:
    """The workload with its weights stored as is usual under a layout, unless that was given."""
    return stored_as(workload, mixed_precision(layout))


def in_framework(workload: Workload, how: MixedPrecision) -> Workload:
    """The workload in the framework that people use for such layouts, unless that was given.

    Tensor, pipeline, context and expert parallelism are Megatron's; all else is plain PyTorch. A framework
    that was named brings its optimizer; one that follows from the layout leaves it, so that layouts compare.
    """
    options = workload.options
    if FRAMEWORK in workload.left_open:
        usual = MEGATRON if how is MixedPrecision.FP32_GRADIENTS else PLAIN
        return _with_attention(replace(workload, options=replace(options, framework=usual)))
    own = frameworks()[options.framework].optimizer
    if own is None or OPTIMIZER not in workload.left_open or options.optimizer is None or options.offload:
        return workload
    return replace(workload, options=replace(options, optimizer=own))


def _with_attention(workload: Workload) -> Workload:
    """The workload with the attention of its framework in the year of its software, unless that was given."""
    options = workload.options
    if options.software_year is None or ATTENTION not in workload.left_open:
        return workload
    if not workload.source.has_attention:
        return workload
    attention = usual_attention(None, options.framework, options.software_year)
    return replace(
        workload,
        sizes=replace(workload.sizes, attention=cast("AttentionKind", attention)),
        options=replace(options, attention=attention),
    )


def stored_as(workload: Workload, how: MixedPrecision) -> Workload:
    """The workload as it is usually run where weights are stored in one of the usual ways, unless given."""
    workload = in_framework(workload, how)
    own = frameworks()[workload.options.framework].mixed_precision
    how = max(how, MixedPrecision[own]) if own else how
    if WEIGHTS not in workload.left_open:
        return workload
    options, half = workload.options, _HALF.get(workload.options.precision)
    if half is None or how is MixedPrecision.AUTOCAST:
        plain = replace(options, weights="fp32", master_weights=False, gradients=None, half_outputs=False)
        return replace(workload, options=plain)
    gradients = "fp32" if how is MixedPrecision.FP32_GRADIENTS and half == "bf16" else None
    return replace(
        workload,
        options=replace(
            options,
            weights=half,
            master_weights=True,
            gradients=gradients,
            half_outputs=how is MixedPrecision.MASTER_WEIGHTS,
        ),
    )
