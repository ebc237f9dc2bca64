"""From what a user asks for to a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest
from foretrain.workloads.options import StepOptions
from foretrain.workloads.workload import Workload
from foretrain.workloads.zoo import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.lora import LoraOptions


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """A model by name or file, sizes, and how a step is run; None leaves a choice to the model."""

    model: str
    batch: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    precision: str = "fp32"
    optimizer: str | None = "adamw"
    attention: str = "sdpa"
    channels_last: bool = False
    compile: bool = False
    checkpoint_activations: bool = False
    lora: str | None = None
    forward_only: bool = False
    allow_user_code: bool = True

    def __post_init__(self) -> None:
        for name in ("batch", "seq_len", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}")


def workload_of(request: WorkloadRequest) -> Workload:
    """The workload a request describes. Reading the model is left to the reader of its form."""
    from foretrain.workloads.readers import read_model

    options = StepOptions(
        precision=request.precision,
        optimizer=None if request.forward_only else request.optimizer,
        attention=request.attention,
        channels_last=request.channels_last,
        compile=request.compile,
        checkpoint_activations=request.checkpoint_activations,
        forward_only=request.forward_only,
    )
    sizes = BuildOptions(request.batch, request.seq_len, request.image_size, options.attention)
    source = read_model(request.model, allow_user_code=request.allow_user_code)
    return Workload(source, sizes, options, _lora(request.lora))


def _lora(text: str | None) -> LoraOptions | None:
    if text is None:
        return None
    from foretrain.workloads.lora import parse_lora

    return parse_lora(text)
