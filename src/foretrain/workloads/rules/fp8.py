"""FP8: operands of linear layers are cast to one byte before they are multiplied; the rest stays BF16.

A tensor is cast once, together with its transpose, since FP8 products want both operands along the dimension
summed over: inputs and weights in the forward pass, gradients in the product of the inputs' gradient; the
weights' gradient reuses both (NVIDIA Transformer Engine's cast_transpose). Frozen weights have no such
gradient, so that their inputs are not transposed; Blackwell multiplies in any layout. How values are scaled
into the range of one byte decides what a cast of n elements moves besides its 2n bytes read and 2n written:

| scaling | scales | amax | cast |
|---|---|---|---|
| delayed | one a tensor, from earlier steps | none | none where a fused kernel writes FP8 |
| current | one a tensor, from its present values | 2n bytes read, none behind a fused kernel | always |
| block | one byte for 32 elements of each copy | in registers | none behind a fused activation |

The scale of a whole tensor is known only after its last value, so nothing can write it in FP8 at once; a
fused kernel at best computes its maximum (amax). Blocks along rows are not blocks along columns: the
transpose is quantised anew, in the same pass, with scales of its own: FP32 for 128 elements on Hopper, a byte
for 32 on Blackwell (MXFP8). Transformer Engine's norms write no such blocks, its activations do.

References: NVIDIA Transformer Engine, user guide, "Low precision training"; pull requests 1471, 1560, 2004,
2013; torchao, `float8` and `mx_formats`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foretrain.facts.frameworks import Framework, frameworks
from foretrain.workloads.graph import Call, Graph, Phase, Role
from foretrain.workloads.ops import Direction, Kind, Work

_SCALE_BYTES = 1 / 32
"""Of an element of a copy with scales for blocks: 4 bytes for 128 elements, or 1 for 32."""
SCALED_BLOCKS, TRANSPOSED = "scaled_blocks", "transposed"
"""Dimensions of works: 1 of a product of blocks with scales; of a cast, the bytes of the copy that devices
with products of any layout do without."""


def in_fp8(work: Work, graph: Graph, call: Call) -> tuple[Work, ...]:
    """An operator and the casts before it.

    Transformer Engine casts weights once per step, here with the update, and leaves layers outside the blocks
    in BF16; it has FP8 products of experts, too (GroupedLinear), which plain PyTorch leaves in BF16.
    """
    own = frameworks()[graph.options.framework]
    scaling = graph.options.fp8_scaling or own.fp8_scaling
    if own.casts_fp8_weights_once and call.name == _COPY_OF_MASTERS and call.phase is Phase.OPTIMIZER:
        written = (graph.buffers[buffer] for buffer in call.writes)
        specs = [graph.specs[buffer.spec] for buffer in written if _is_in_block(buffer.name)]
        matrices = sum(spec.elements for spec in specs if len(spec.shape) > 1)
        casts = _casts(work, matrices, scaling) if matrices else ()
        return (work, *(replace(cast, kind=Kind.OPTIMIZER) for cast in casts))
    is_layer = work.kind is Kind.LINEAR or (own.casts_fp8_weights_once and _is_grouped_layer(work))
    if not is_layer or work.dtype != "bfloat16":
        return (work,)
    if own.casts_fp8_weights_once and not _is_in_block(call.module):
        return (work,)
    return (*_casts_before(work, graph, call, own, scaling), _product(work, scaling))


def gathered_share(graph: Graph, call: Call, copies: int = 1) -> float:
    """Bytes that devices send to gather an operand of a layer's product, over those of the operand.

    Transformer Engine casts before it gathers. Blocks need a copy for each of the `copies` of products that
    sum over different dimensions; a scale of the whole tensor serves its transpose, too.
    """
    own = frameworks()[graph.options.framework]
    is_cast = graph.options.precision == "fp8" and own.casts_fp8_weights_once
    if not is_cast or not _is_in_block(call.module):
        return 1.0
    scaling = graph.options.fp8_scaling or own.fp8_scaling
    return copies * (1 + _SCALE_BYTES) / 2 if scaling == "block" else 0.5


def _product(work: Work, scaling: str) -> Work:
    read = float(work.read_bytes // 2)
    if scaling != "block":
        return replace(work, dtype="float8_e4m3fn", read_bytes=read)
    dims = {**work.dims, SCALED_BLOCKS: 1}
    return replace(work, dtype="float8_e4m3fn", dims=dims, read_bytes=read * (1 + _SCALE_BYTES))


def _is_grouped_layer(work: Work) -> bool:
    """Whether a work is a product of the weights of experts."""
    return "groups" in work.dims and "tokens" in work.dims and work.kind is Kind.MATMUL


def _is_in_block(path: str) -> bool:
    return any(name.isdigit() for name in path.split("."))


_COPY_OF_MASTERS = "aten._foreach_copy_"
"""The operator that copies updated FP32 weights to those that the model computes with."""


def _casts_before(work: Work, graph: Graph, call: Call, own: Framework, scaling: str) -> Iterator[Work]:
    """The casts of the operands that a product is the first to need in one byte."""
    tokens, into, out = (work.dims[name] for name in ("tokens", "in", "out"))
    if work.direction is Direction.WEIGHT_GRADIENT:
        return
    forward = work.direction is not Direction.INPUT_GRADIENT
    copies = 2 if _is_trained(graph, call) else 1
    elements = tokens * (into if forward else out)
    yield from _casts(work, elements, scaling, _producer(graph, call, own), copies)
    if forward and not own.casts_fp8_weights_once:
        yield from _casts(work, into * out, scaling)


def _is_trained(graph: Graph, call: Call) -> bool:
    """Whether a layer needs the gradient of its weights, and with it transposed inputs and gradients."""
    names = [graph.buffers[read].name for read in call.reads if graph.buffers[read].role is Role.PARAMETER]
    return not names or any(name in graph.trained_names for name in names)


def _producer(graph: Graph, call: Call, own: Framework) -> str:
    """The fused kernel that the activations or gradients of a product come from: "norm", "activation", any
    other if the step is "compiled", or "" without one."""
    if graph.options.compile:
        return "compiled"
    if not own.fuses_fp8_casts:
        return ""
    forward = call.phase is Phase.FORWARD or call.recomputed
    parts = ("norm", "activation") if forward else ("activation",)
    births = (graph.buffers[read].born for read in call.reads if graph.buffers[read].role not in _WEIGHTS)
    made_by = {graph.calls[born].settings.get("part") for born in births if born >= 0}
    return next((part for part in parts if part in made_by), "")


_WEIGHTS = (Role.PARAMETER, Role.CAST_WEIGHT)


def _casts(work: Work, elements: int, scaling: str, producer: str = "", copies: int = 2) -> tuple[Work, ...]:
    """What it takes to have a tensor, and its transpose, in one byte after the fused kernel that made it."""
    if producer and (scaling == "delayed" or (scaling == "block" and producer == "activation")):
        return ()
    dims, read, written = {"elements": elements}, 2.0 * elements, float(copies * elements)
    if scaling == "block":
        written *= 1 + _SCALE_BYTES
    elif copies == 2:
        dims[TRANSPOSED] = elements
    cast = Work(Kind.COPY, work.direction, dims, work.dtype, 0.0, read, written, 1)
    if scaling != "current" or producer:
        return (cast,)
    rows = {"rows": 1, "length": elements}
    return (Work(Kind.REDUCTION, work.direction, rows, work.dtype, float(elements), read, 4.0, 1), cast)
