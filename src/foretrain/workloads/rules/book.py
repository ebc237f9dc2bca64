"""The book of all rules, and the walk that applies them to a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from foretrain.registry import DuplicateName, modules_beside
from foretrain.workloads.graph import Call, Graph
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
    adapt = _ARITHMETIC.get(str(graph.settings.get("precision")))
    is_fused = bool(graph.settings.get("compile"))
    return tuple(adapted for work in works for adapted in adapt(work, is_fused)) if adapt else works


def _in_tf32(work: Work, _: bool) -> tuple[Work, ...]:
    """TF32: FP32 products and convolutions run on tensor cores; nothing else changes."""
    is_product = work.kind in MATRIX_KINDS and work.dtype == "float32"
    return (replace(work, dtype="tf32"),) if is_product else (work,)


def _in_fp8(work: Work, is_fused: bool) -> tuple[Work, ...]:
    """FP8: operands of linear layers are cast to one byte before they are multiplied; the rest stays BF16.

    A tensor is cast once, together with its transpose, since FP8 products want both operands along the
    dimension summed over: inputs and weights in the forward pass, gradients in the product of the inputs'
    gradient; the weights' gradient reuses both (NVIDIA Transformer Engine's cast_transpose). In fused code
    what computes activations and gradients writes them in one byte at once, and only weights are cast.
    """
    if work.kind is not Kind.LINEAR or work.dtype != "bfloat16":
        return (work,)
    product = replace(work, dtype="float8_e4m3fn", read_bytes=float(work.read_bytes // 2))
    cast = [_cast(work, elements) for elements in _cast_elements(work, is_fused) if elements]
    return (*cast, product)


def _cast_elements(work: Work, is_fused: bool) -> tuple[int, ...]:
    """Elements of the operands that a product is the first to need in one byte, and that must be cast."""
    tokens, into, out = (work.dims[name] for name in ("tokens", "in", "out"))
    if work.direction is Direction.INPUT_GRADIENT:
        return () if is_fused else (tokens * out,)
    if work.direction is Direction.WEIGHT_GRADIENT:
        return ()
    return (into * out,) if is_fused else (tokens * into, into * out)


def _cast(work: Work, elements: int) -> Work:
    """Two bytes read for each element, and one written here and one in the transpose."""
    dims = {"elements": elements}
    return Work(Kind.COPY, work.direction, dims, work.dtype, 0.0, 2.0 * elements, 2.0 * elements, 1)


_ARITHMETIC: Mapping[str, Callable[[Work, bool], tuple[Work, ...]]] = {"tf32": _in_tf32, "fp8": _in_fp8}
