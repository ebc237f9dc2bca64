"""From a request to a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from foretrain.decoding import part
from foretrain.errors import InvalidRequest
from foretrain.workloads.options import (
    HALF_PRECISIONS,
    HALF_WEIGHTS,
    OFFLOADS,
    REAL,
    ResolvedOptions,
    StepOptions,
    WorkloadRequest,
    usual_attention,
)
from foretrain.workloads.readers import ModelSource, read_model
from foretrain.workloads.workload import Workload
from foretrain.workloads.zoo import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.lora import LoraOptions
    from foretrain.workloads.zoo import AttentionKind

DEFAULTS = ResolvedOptions()


def workload_of(
    request: WorkloadRequest, source: ModelSource | None = None, allow_user_code: bool = True
) -> Workload:
    """The workload of a request; `source` is the model where it is not to be read from its name."""
    for name in ("batch", "seq_len", "image_size"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name} must be at least 1, got {value}")
    _step_options(request, has_attention=False)  # refuses what is wrong before the model, which takes longer
    lora = _lora(request)
    if source is None:
        source = read_model(request.model, allow_user_code=allow_user_code)
    options = _step_options(request, source.has_attention)
    is_real = request.trace == REAL
    if is_real and not source.has_data:
        raise InvalidRequest(
            f"{source.name} comes without data, so its step cannot be run: `trace` {REAL} is for "
            "FILE.py:callable, a module of this process, and the detection models of torchvision"
        )
    sizes = BuildOptions(
        batch=request.batch,
        seq_len=request.seq_len,
        image_size=request.image_size,
        attention=cast("AttentionKind", options.attention),  # ResolvedOptions has checked it
        real=is_real,
    )
    return Workload(source, sizes, options, lora, frozenset(_list_left_open(request)))


def _list_left_open(request: WorkloadRequest) -> Iterator[str]:
    """The options that follow the device or the strategy, because the request says nothing of them."""
    if request.precision is None and _infer_precision(request) == DEFAULTS.precision:
        yield "precision"
    stored = (request.weights, request.gradients, request.autocast, request.lora)
    if not request.master_weights and all(each is None for each in stored):
        yield "weights"
    if request.lora is not None and request.weights is None:
        yield "frozen_weights"
    if request.framework is None:
        yield "framework"
    if request.optimizer is None:
        yield "optimizer"
    if request.attention is None:
        yield "attention"


def _step_options(request: WorkloadRequest, has_attention: bool) -> ResolvedOptions:
    has_optimizer = not (request.forward_only or request.no_optimizer)
    precision = precision_of(request)
    weights = request.weights or _usual_weights(request, precision)
    framework = request.framework or DEFAULTS.framework
    is_usual = request.attention is None and not has_attention
    return part(
        ResolvedOptions,
        request,
        precision=precision,
        optimizer=(request.optimizer or DEFAULTS.optimizer) if has_optimizer else None,
        attention=DEFAULTS.attention
        if is_usual
        else usual_attention(request.attention, framework, request.software_year),
        checkpoint_activations=request.checkpoint_activations or request.selective_checkpointing,
        offload=_offload(request),
        weights=weights,
        autocast=True if request.autocast is None and request.lora is not None else request.autocast,
        framework=framework,
    )


def _offload(request: WorkloadRequest) -> tuple[str, ...]:
    """What is offloaded, each once; parameters take the optimizer with them, as in FSDP's `CPUOffload`."""
    names = {name for text in request.offload for name in text.split(",")}
    if "parameters" in names:
        names.add("optimizer")
    unknown = sorted(names - set(OFFLOADS))
    return tuple([name for name in OFFLOADS if name in names] + unknown)


def precision_of(request: StepOptions) -> str:
    """The precision of a request before its devices are known: as given, implied by its weights, or fp32."""
    return request.precision or _infer_precision(request)


def _infer_precision(request: StepOptions) -> str:
    """The precision that weights in half precision imply; else the default, which a device may replace."""
    if request.weights in HALF_PRECISIONS:
        return request.weights
    return "bf16" if request.master_weights else DEFAULTS.precision


def _usual_weights(request: WorkloadRequest, precision: str) -> str:
    """What weights are stored in unless it is given: frozen ones, and those with master copies, in half."""
    if request.lora is not None or request.master_weights:
        return HALF_WEIGHTS.get(precision, DEFAULTS.weights)
    return DEFAULTS.weights


def _lora(request: WorkloadRequest) -> LoraOptions | None:
    if request.lora is None:
        return None
    from foretrain.workloads.lora import parse_lora

    return parse_lora(request.lora)
