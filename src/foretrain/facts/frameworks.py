"""Training frameworks: which kernels they fuse, what they keep for the backward pass, how fast they launch.

`data/frameworks/frameworks.toml` has one table for each framework, with its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from foretrain.facts.sheets import data_root, read_toml
from foretrain.persisted import restore
from foretrain.registry import Registry

PLAIN = "pytorch"
"""The framework of a step that names none."""
FUSIONS = (
    "norm", "activation", "rope", "softmax", "residual", "loss", "projections", "accumulation"
)  # fmt: skip
"""What a framework may fuse; `workloads.fused_kernels` says what each of them does to a graph."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A training framework.

    `fused` are the groups of operators that run as one kernel. `mixed_precision` names how it stores weights
    in half precision ("" leaves it to the strategy), `optimizer` its default update.
    `recomputes_whole_blocks` is False where a checkpointed block stops as soon as it has what the backward
    pass needs, as `torch.utils.checkpoint` does. `sequence_parallel`: tensor parallelism divides operators
    between layers by tokens. `overlaps_tensor_exchanges`: its recipes run those of divided layers beside
    their own products. `casts_fp8_weights_once`: FP8 copies of weights are made once per step, not for
    every micro-batch; `fuses_fp8_casts`: norms and activations write their results in FP8; `fp8_scaling` its
    default of that option. `timed_host`: its
    launches were timed and are slower than plain PyTorch's; `host_factor` is host time per launch over that
    of plain PyTorch where no step was timed. `python_functions`: its layers are autograd functions in Python,
    backward passes included. `waits_for_batches`: the host copies each micro-batch, or its sizes, in a call
    that waits for the device. `copies_input_in_step`: inputs that no loader prefetches are copied to the
    device within the step. `filter_passes`: the bytes moved, in sizes of the filter, to bring it into the
    library's layout for each dense convolution and gradient. `communicators_per_axis` are the NCCL
    communicators it makes for every axis of a layout. `attention` is its default of that option, "" as
    `attention_library` has it (`attention_in`).
    """

    name: str
    title: str
    fused: frozenset[str]
    recomputes_whole_blocks: bool
    sequence_parallel: bool
    casts_fp8_weights_once: bool
    fuses_fp8_casts: bool
    attention: str
    source: str
    aliases: tuple[str, ...] = ()
    mixed_precision: str = ""
    optimizer: str | None = None
    overlaps_tensor_exchanges: bool = False
    fp8_scaling: str = "delayed"
    host_factor: float = 1.0
    copies_input_in_step: bool = False
    filter_passes: float = 0.0
    timed_host: bool = False
    python_functions: bool = False
    waits_for_batches: bool = False
    attention_library: str = "pytorch"
    communicators_per_axis: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        unknown = sorted(self.fused - set(FUSIONS))
        if unknown:
            raise ValueError(
                f"framework {self.name} fuses {', '.join(unknown)}; known are {', '.join(FUSIONS)}"
            )


@cache
def frameworks() -> Registry[Framework]:
    """All frameworks by name and alias."""
    raw = read_toml(data_root() / "frameworks" / "frameworks.toml")
    items = [restore(Framework, {**row, "name": name}, name) for name, row in raw["frameworks"].items()]
    return Registry(
        "framework",
        items,
        name=lambda item: item.name,
        aliases=lambda item: item.aliases,
        hint=f"Known are {', '.join(item.name for item in items)}",
    )


def attention_in(library: str, year: int) -> str:
    """The kernel of attention that a library calls by default in a year: `eager` before it had fused ones,
    `sdpa` where the GPU decides.

    `data/frameworks/attention.toml` has the releases. The libraries are pytorch, transformer-engine and
    flash-attn.
    """
    rows = read_toml(data_root() / "frameworks" / "attention.toml")[library]
    return next((str(row["kernel"]) for row in reversed(rows) if row["from"] <= year), "eager")
