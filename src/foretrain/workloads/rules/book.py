"""The book of all rules, and the walk that applies them to a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from foretrain.facts.frameworks import PLAIN, frameworks
from foretrain.registry import DuplicateName, modules_beside
from foretrain.workloads.graph import Call, Graph, Phase, Role
from foretrain.workloads.ops import MATRIX_KINDS, Direction, Kind, Op, Work
from foretrain.workloads.rules import vector
from foretrain.workloads.rules.site import Rule, resolve


@cache
def _rules() -> Mapping[str, Rule]:
    """The table `RULES` of every module of this package."""
    book: dict[str, Rule] = {}
    for module in modules_beside(__name__):
        chapter: Mapping[str, Rule] = getattr(module, "RULES", {})
        twice = book.keys() & chapter.keys()
        if twice:
            raise DuplicateName(f"{module.__name__} has a second rule for {', '.join(sorted(twice))}")
        book.update(chapter)
    return book


def operators(graph: Graph) -> tuple[Op, ...]:
    """The operators of a graph, in execution order. Calls equal in every respect share one `Work`."""
    sizes = [spec.bytes for spec in graph.specs]
    works: dict[int, tuple[Work, ...]] = {}
    ops: list[Op] = []
    for index, (call, first) in enumerate(zip(graph.calls, graph.representatives, strict=True)):
        if first == index:
            works[index] = _works(graph, call, sizes)
        name, phase, module = call[:3]
        ops += [Op(work, index, name, phase, module, call.recomputed) for work in works[first]]
    return tuple(ops)


def unknown_names(ops: tuple[Op, ...]) -> tuple[str, ...]:
    """Names of the operators no rule knows; their FLOP are not counted."""
    return tuple(sorted({op.name for op in ops if op.work.kind is Kind.UNKNOWN}))


def _works(graph: Graph, call: Call, sizes: Sequence[int]) -> tuple[Work, ...]:
    rule = _rules().get(call.name, vector.by_nature)
    works = rule(resolve(graph, call, sizes))
    if graph.settings.get("compile"):
        works = tuple(map(_by_inductor, works))
    passes = frameworks()[graph.settings.get("framework") or PLAIN].filter_passes
    if passes:
        works = tuple(each for work in works for each in _with_filter(work, passes))
    precision = graph.settings.get("precision")
    if precision == "tf32":
        return tuple(map(_in_tf32, works))
    if precision == "fp8":
        return tuple(adapted for work in works for adapted in _in_fp8(work, graph, call))
    return works


def _by_inductor(work: Work) -> Work:
    """TorchInductor adds the bias of a convolution in the kernel that reads its result, and writes its own
    kernels where those of PyTorch loop over samples and channels.
    """
    if work.kind not in (Kind.CONVOLUTION, Kind.RESAMPLE) or not work.dims.keys() & _ONLY_EAGER:
        return work
    return replace(work, dims={name: size for name, size in work.dims.items() if name not in _ONLY_EAGER})


_ONLY_EAGER = {"bias", "loops", "positions"}
"""Dimensions of convolutions and resampled images that count only in eager steps."""


def _with_filter(work: Work, passes: float) -> tuple[Work, ...]:
    """A dense convolution whose filter is first brought into the library's layout, or its gradient back."""
    if work.kind is not Kind.CONVOLUTION or work.dims["groups"] > 1:
        return (work,)
    elements = work.dims["in_channels"] * work.dims["out_channels"]
    elements *= math.prod(size for name, size in work.dims.items() if name.startswith("kernel_"))
    moved = passes * elements * _ITEM_BYTES[work.dtype] / 2
    dims = {"elements": elements}
    return Work(Kind.COPY, work.direction, dims, work.dtype, 0.0, moved, moved), work


_ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def _in_tf32(work: Work) -> Work:
    """TF32: FP32 products and convolutions run on tensor cores; nothing else changes."""
    is_product = work.kind in MATRIX_KINDS and work.dtype == "float32"
    return replace(work, dtype="tf32") if is_product else work


def _in_fp8(work: Work, graph: Graph, call: Call) -> tuple[Work, ...]:
    """FP8: operands of linear layers are cast to one byte before they are multiplied; the rest stays BF16.

    A tensor is cast once, together with its transpose, since FP8 products want both operands along the
    dimension summed over: inputs and weights in the forward pass, gradients in the product of the inputs'
    gradient; the weights' gradient reuses both (NVIDIA Transformer Engine's cast_transpose). A kernel that
    the framework or the compiler has fused writes its results in one byte at once. Transformer Engine casts
    weights once per step, here with the update, and leaves layers outside the blocks in BF16; it has FP8
    products of experts, too (GroupedLinear), which plain PyTorch leaves in BF16.
    """
    own = frameworks()[graph.settings.get("framework") or PLAIN]
    if own.casts_fp8_weights_once and call.name == _COPY_OF_MASTERS and call.phase is Phase.OPTIMIZER:
        written = (graph.buffers[buffer] for buffer in call.writes)
        specs = [graph.specs[buffer.spec] for buffer in written if _is_in_block(buffer.name)]
        matrices = sum(spec.elements for spec in specs if len(spec.shape) > 1)
        return (work, replace(_cast(work, matrices), kind=Kind.OPTIMIZER)) if matrices else (work,)
    is_layer = work.kind is Kind.LINEAR or (own.casts_fp8_weights_once and _is_grouped_layer(work))
    if not is_layer or work.dtype != "bfloat16":
        return (work,)
    if own.casts_fp8_weights_once and not _is_in_block(call.module):
        return (work,)
    product = replace(work, dtype="float8_e4m3fn", read_bytes=float(work.read_bytes // 2))
    is_cast = _is_written_in_fp8(graph, call)
    cast = _cast_elements(work, is_cast, own.casts_fp8_weights_once)
    return (*(_cast(work, elements) for elements in cast if elements), product)


def _is_grouped_layer(work: Work) -> bool:
    """Whether a work is a product of the weights of experts."""
    return "groups" in work.dims and "tokens" in work.dims and work.kind is Kind.MATMUL


def _is_in_block(path: str) -> bool:
    return any(name.isdigit() for name in path.split("."))


_COPY_OF_MASTERS = "aten._foreach_copy_"
"""The operator that copies updated FP32 weights to those that the model computes with."""


def _is_written_in_fp8(graph: Graph, call: Call) -> bool:
    """Whether the activations or gradients that a product reads come in one byte from a fused kernel."""
    if graph.settings.get("compile"):
        return True
    if not frameworks()[graph.settings.get("framework") or PLAIN].fuses_fp8_casts:
        return False
    forward = call.phase is Phase.FORWARD or call.recomputed
    parts = ("norm", "activation") if forward else ("activation",)
    births = (graph.buffers[read].born for read in call.reads if graph.buffers[read].role not in _WEIGHTS)
    return any(born >= 0 and graph.calls[born].settings.get("part") in parts for born in births)


_WEIGHTS = (Role.PARAMETER, Role.CAST_WEIGHT)


def _cast_elements(work: Work, is_cast: bool, are_weights_cast: bool) -> tuple[int, ...]:
    """Elements of the operands that a product is the first to need in one byte, and that must be cast."""
    tokens, into, out = (work.dims[name] for name in ("tokens", "in", "out"))
    if work.direction is Direction.WEIGHT_GRADIENT:
        return ()
    if work.direction is Direction.INPUT_GRADIENT:
        return () if is_cast else (tokens * out,)
    return (0 if is_cast else tokens * into, 0 if are_weights_cast else into * out)


def _cast(work: Work, elements: int) -> Work:
    """Two bytes read for each element, and one written here and one in the transpose."""
    dims = {"elements": elements}
    return Work(Kind.COPY, work.direction, dims, work.dtype, 0.0, 2.0 * elements, 2.0 * elements, 1)
