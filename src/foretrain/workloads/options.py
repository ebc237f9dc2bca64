"""What may be chosen about a training step besides the model itself."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.facts.frameworks import PLAIN, attention_in, frameworks

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
HALF_PRECISIONS = ("fp16", "bf16")
WEIGHTS = ("fp32", *HALF_PRECISIONS)
ATTENTIONS = ("eager", "sdpa", "flash", "flash1", "flash2", "flash3", "cudnn")
ATTENTION_KERNELS = {name: name for name in ATTENTIONS[3:]} | {"flash": "flash2"}
"""The words that name a kernel of fused attention; `sdpa` is the one that PyTorch picks on the GPU."""
LOSSES = ("eager", "fused")
FP8_SCALINGS = ("delayed", "current", "block")
OFFLOADS = ("optimizer", "parameters", "activations")
REAL = "real"
TRACES = ("meta", REAL)
"""How a step is recorded: without data, on shapes alone, or by running it on the CPU with example inputs."""
QUANTISED_BLOCK = 256
"""Elements of optimizer state that share a scale in an 8-bit optimizer (bitsandbytes 0.45)."""
QUANTISED_FROM = 4096
"""Smaller tensors keep 32-bit state, as bitsandbytes does."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one training step is run.

    `precision` is what products are computed in, `weights` what parameters are stored in:

    | as in | precision | weights | master_weights | gradients |
    |---|---|---|---|---|
    | autocast (default) | bf16 | fp32 | no | of the weights |
    | a module converted by `.to(bfloat16)` | bf16 | bf16 | no | of the weights |
    | Megatron, DeepSpeed, nanotron | bf16 | bf16 | yes | of the weights, or fp32 |

    `master_weights` are FP32 copies in the optimizer alone; `gradients` "fp32" adds gradients up in FP32
    there. The outputs of a converted module are cast to FP32 before the loss, as by Megatron and Apex;
    `half_outputs` leaves them to the loss as they are, as FSDP and DeepSpeed do. `autocast` casts what is not
    in `precision` in each call: by default where weights are FP32.

    `checkpoint_activations` recomputes blocks in the backward pass, `selective_checkpointing` all of them but
    products and attention. `gradient_release` updates each parameter when its gradient is complete, in the
    backward pass, so that gradients are never held together.

    `offload` names what host memory holds: the optimizer (which then runs on the host), parameters (and with
    them the optimizer), saved activations.

    `optimizer` None leaves the optimizer out; `forward_only` also leaves out the backward pass; `cuda_graphs`
    replays the step as one captured graph, so that the host launches once. `framework` sets which kernels are
    fused, whether recomputation stops early, and how fast operators are launched (`facts.frameworks`).
    `loss` fused computes softmax, loss and gradient from half-precision logits without storing probabilities;
    None is as usual with the framework. `fp8_scaling` is how values are scaled into FP8 (`rules.fp8`): by the
    maxima of earlier steps, of the whole tensor, or of blocks. `software_year` is that of the libraries, from
    which `usual_attention` follows; None is the present.
    """

    precision: str = "fp32"
    optimizer: str | None = "adamw"
    attention: str = "sdpa"
    channels_last: bool = False
    compile: bool = False
    checkpoint_activations: bool = False
    selective_checkpointing: bool = False
    gradient_release: bool = False
    offload: tuple[str, ...] = ()
    forward_only: bool = False
    cuda_graphs: bool = False
    weights: str = "fp32"
    master_weights: bool = False
    gradients: str | None = None
    autocast: bool | None = None
    half_outputs: bool = False
    framework: str = PLAIN
    loss: str | None = None
    fp8_scaling: str | None = None
    software_year: int | None = None

    def __post_init__(self) -> None:
        self._check_choices()
        object.__setattr__(self, "framework", frameworks()[self.framework].name)
        if self.weights != "fp32" and self.precision not in (self.weights, "fp8"):
            raise InvalidRequest(
                f"weights in {self.weights} are computed with in {self.weights}: give precision "
                f"{self.weights}, not {self.precision}"
            )
        if self.master_weights and self.weights == "fp32":
            raise InvalidRequest(
                "FP32 weights need no FP32 copies; `master_weights` requires `weights` bf16 or fp16"
            )
        if self.gradients is not None:
            _one_of("gradients", self.gradients, ("fp32", self.weights))
            if self.gradients != self.weights and not self.master_weights:
                raise InvalidRequest(
                    "gradients have the precision of the weights that are updated; `gradients` fp32 requires "
                    "`master_weights`"
                )
        for name in self.offload:
            _one_of("offload", name, OFFLOADS)
        if self.offload and self.forward_only:
            raise InvalidRequest("`offload` is for training; a forward pass keeps no state or activations")
        if self.gradient_release and "optimizer" in self.offload:
            raise InvalidRequest("`gradient_release` updates on the device; leave out `offload` optimizer")
        if self.selective_checkpointing and not self.checkpoint_activations:
            raise InvalidRequest("`selective_checkpointing` requires `checkpoint_activations`")
        if self.gradient_release and (self.optimizer is None or self.forward_only or self.master_weights):
            raise InvalidRequest(
                "`gradient_release` updates weights in the backward pass: it requires an optimizer of the "
                "weights themselves, without `master_weights`"
            )
        if self.checkpoint_activations and self.forward_only:
            raise InvalidRequest(
                "activation checkpointing recomputes for the backward pass; leave it out with `forward_only`"
            )

    def _check_choices(self) -> None:
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("weights", self.weights, WEIGHTS)
        _one_of("attention", self.attention, ATTENTIONS)
        if self.loss is not None:
            _one_of("loss", self.loss, LOSSES)
        if self.fp8_scaling is not None:
            _one_of("fp8_scaling", self.fp8_scaling, FP8_SCALINGS)
            if self.precision != "fp8":
                raise InvalidRequest(
                    f"`fp8_scaling` {self.fp8_scaling} is for `precision` fp8, not {self.precision}; "
                    "give fp8 or leave it out"
                )

    @property
    def casts(self) -> bool:
        """Whether autocast is on."""
        return self.weights == "fp32" if self.autocast is None else self.autocast

    @property
    def adds_up_in_fp32(self) -> bool:
        """Whether half-precision gradients are added up in lasting FP32 buffers."""
        return self.master_weights and self.gradients == "fp32"


def usual_attention(asked: str | None, framework: str, year: int | None) -> str:
    """The attention of a step: as asked, or as is usual with the framework, in the software of a year.

    A kernel that was named stays; `sdpa` and `flash` are what PyTorch, Transformer Engine and the package
    flash-attn made of them in that year.
    """
    own = frameworks()[framework]
    kind = asked or own.attention or "sdpa"
    if year is None or kind not in ("sdpa", "flash"):
        return kind
    library = "flash-attn" if kind == "flash" else own.attention_library
    kernel = attention_in(library, year)
    if kind == "flash" and kernel == "eager":
        raise InvalidRequest(f"there was no flash attention in {year}; give `attention` eager")
    return kernel


def is_paged(optimizer: str | None) -> bool:
    """Whether an optimizer keeps its state in unified memory, as the paged ones of bitsandbytes do."""
    return optimizer is not None and optimizer.startswith("paged-")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} {value!r} is not one of {', '.join(allowed)}")
