"""From what a user asks for to a workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from foretrain.errors import InvalidRequest
from foretrain.workloads.options import StepOptions
from foretrain.workloads.readers import WorkloadFile, WorkloadFileSource, read_model
from foretrain.workloads.workload import Workload
from foretrain.workloads.zoo import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.lora import LoraOptions
    from foretrain.workloads.zoo import AttentionKind

DEFAULTS = StepOptions()


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """A model by name or file, sizes, and how a step is run.

    What is None is taken from the workload file if the model is one, else from the model or from `DEFAULTS`.
    """

    model: str
    batch: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    attention: str | None = None
    lora: str | None = None
    channels_last: bool = False
    compile: bool = False
    cuda_graphs: bool = False
    checkpoint_activations: bool = False
    half_weights: bool = False
    full_gradients: bool = False
    forward_only: bool = False
    no_optimizer: bool = False
    allow_user_code: bool = True

    def __post_init__(self) -> None:
        for name in ("batch", "seq_len", "image_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidRequest(f"{name} must be at least 1, got {value}")


def workload_of(request: WorkloadRequest) -> Workload:
    """The workload a request describes. Reading the model is left to the reader of its form."""
    source = read_model(request.model, allow_user_code=request.allow_user_code)
    file = source.workload if isinstance(source, WorkloadFileSource) else None
    options = _step_options(request, file)
    sizes = BuildOptions(
        batch=_chosen(request, file, "batch"),
        seq_len=_chosen(request, file, "seq_len"),
        image_size=_chosen(request, file, "image_size"),
        attention=cast("AttentionKind", options.attention),  # StepOptions has checked it
    )
    return Workload(source, sizes, options, _lora(request, file))


def _step_options(request: WorkloadRequest, file: WorkloadFile | None) -> StepOptions:
    without_optimizer = request.forward_only or request.no_optimizer
    return StepOptions(
        precision=_chosen(request, file, "precision", DEFAULTS.precision),
        optimizer=None if without_optimizer else _chosen(request, file, "optimizer", DEFAULTS.optimizer),
        attention=_chosen(request, file, "attention", DEFAULTS.attention),
        channels_last=request.channels_last or _chosen(None, file, "channels_last", False),
        compile=request.compile or _chosen(None, file, "compile", False),
        checkpoint_activations=request.checkpoint_activations
        or _chosen(None, file, "checkpoint_activations", False),
        forward_only=request.forward_only,
        cuda_graphs=request.cuda_graphs or _chosen(None, file, "cuda_graphs", False),
        half_weights=request.half_weights or _chosen(None, file, "half_weights", False),
        full_gradients=request.full_gradients or _chosen(None, file, "full_gradients", False),
    )


def _chosen(
    request: WorkloadRequest | None, file: WorkloadFile | None, name: str, default: Any = None
) -> Any:
    """What the request says, else the workload file, else the default."""
    for place in (request, file):
        said = getattr(place, name, None)
        if said is not None:
            return said
    return default


def _lora(request: WorkloadRequest, file: WorkloadFile | None) -> LoraOptions | None:
    if request.lora is None:
        return None if file is None else file.lora
    from foretrain.workloads.lora import parse_lora

    return parse_lora(request.lora)
