"""What may be chosen about a training step besides the model itself."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8")
HALF_PRECISIONS = ("fp16", "bf16")
ATTENTIONS = ("eager", "sdpa", "flash")


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one training step is run. `fp16` and `bf16` mean mixed precision with FP32 weights.

    With `half_weights` they mean a module that lives in half precision, with FP32 copies of the weights in
    the optimizer alone, as Megatron and nanotron train; `full_gradients` adds gradients up in FP32 there.

    `optimizer` None leaves the optimizer out; `forward_only` also leaves out the backward pass; `cuda_graphs`
    replays the step as one captured graph, so that the host launches once.
    """

    precision: str = "fp32"
    optimizer: str | None = "adamw"
    attention: str = "sdpa"
    channels_last: bool = False
    compile: bool = False
    checkpoint_activations: bool = False
    forward_only: bool = False
    cuda_graphs: bool = False
    half_weights: bool = False
    full_gradients: bool = False

    def __post_init__(self) -> None:
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("attention", self.attention, ATTENTIONS)
        if self.half_weights and self.precision not in HALF_PRECISIONS:
            raise InvalidRequest(
                f"half-precision weights need precision {' or '.join(HALF_PRECISIONS)}, not {self.precision}"
            )
        if self.full_gradients and not self.half_weights:
            raise InvalidRequest(
                "gradients are FP32 anyway where weights are; full_gradients is for half_weights"
            )
        if self.checkpoint_activations and self.forward_only:
            raise InvalidRequest(
                "activation checkpointing recomputes for the backward pass; forward-only has none"
            )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidRequest(f"{name} {value!r} is not one of {', '.join(allowed)}")
