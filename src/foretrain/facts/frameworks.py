"""Training frameworks: which kernels they fuse, what they keep for the backward pass, how fast they launch.

`data/frameworks/frameworks.toml` has one table for each framework, with its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from foretrain.facts.sheets import data_root, read_toml
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
    aliases: tuple[str, ...]
    fused: frozenset[str]
    mixed_precision: str
    optimizer: str | None
    recomputes_whole_blocks: bool
    sequence_parallel: bool
    overlaps_tensor_exchanges: bool
    casts_fp8_weights_once: bool
    fuses_fp8_casts: bool
    fp8_scaling: str
    host_factor: float
    copies_input_in_step: bool
    filter_passes: float
    timed_host: bool
    python_functions: bool
    waits_for_batches: bool
    attention: str
    attention_library: str
    communicators_per_axis: int
    source: str
    note: str


@cache
def frameworks() -> Registry[Framework]:
    """All frameworks by name and alias."""
    raw = read_toml(data_root() / "frameworks" / "frameworks.toml")
    items = [_framework(name, raw["frameworks"][name]) for name in raw["frameworks"]]
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


def _framework(name: str, row: dict[str, Any]) -> Framework:
    unknown = sorted(set(row["fused"]) - set(FUSIONS))
    if unknown:
        raise ValueError(f"framework {name} fuses {', '.join(unknown)}, which is not one of {FUSIONS}")
    return Framework(
        name=name,
        title=row["title"],
        aliases=tuple(row.get("aliases", ())),
        fused=frozenset(row["fused"]),
        mixed_precision=row.get("mixed_precision", ""),
        optimizer=row.get("optimizer"),
        recomputes_whole_blocks=row["recomputes_whole_blocks"],
        sequence_parallel=row["sequence_parallel"],
        overlaps_tensor_exchanges=row.get("overlaps_tensor_exchanges", False),
        casts_fp8_weights_once=row["casts_fp8_weights_once"],
        fuses_fp8_casts=row["fuses_fp8_casts"],
        fp8_scaling=row.get("fp8_scaling", "delayed"),
        host_factor=float(row.get("host_factor", 1.0)),
        copies_input_in_step=row.get("copies_input_in_step", False),
        filter_passes=float(row.get("filter_passes", 0.0)),
        timed_host=row.get("timed_host", False),
        python_functions=row.get("python_functions", False),
        waits_for_batches=row.get("waits_for_batches", False),
        attention=row["attention"],
        attention_library=row.get("attention_library", "pytorch"),
        communicators_per_axis=row.get("communicators_per_axis", 1),
        source=row["source"],
        note=row.get("note", ""),
    )
