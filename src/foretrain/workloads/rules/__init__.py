"""From calls to operators: one file per group of kinds, each with its own table of rules, and their use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from foretrain.facts.frameworks import frameworks
from foretrain.registry import DuplicateName, modules_beside
from foretrain.workloads.graph import Call, Graph
from foretrain.workloads.ops import MATRIX_KINDS, Kind, Op, Work
from foretrain.workloads.rules import vector
from foretrain.workloads.rules.fp8 import in_fp8
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
    # A deep model repeats its calls: each distinct one is resolved once, and priced once later.
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
    if graph.options.compile:
        works = tuple(map(_by_inductor, works))
    passes = frameworks()[graph.options.framework].filter_passes
    if passes:
        works = tuple(each for work in works for each in _with_filter(work, passes))
    precision = graph.options.precision
    if precision == "tf32":
        return tuple(map(_in_tf32, works))
    if precision == "fp8":
        return tuple(adapted for work in works for adapted in in_fp8(work, graph, call))
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
    # A pass reads or writes the filter; a copy has as many of one as of the other.
    moved = passes * elements * _ITEM_BYTES[work.dtype] / 2
    dims = {"elements": elements}
    return Work(Kind.COPY, work.direction, dims, work.dtype, 0.0, moved, moved), work


_ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def _in_tf32(work: Work) -> Work:
    """TF32: FP32 products and convolutions run on tensor cores; nothing else changes."""
    is_product = work.kind in MATRIX_KINDS and work.dtype == "float32"
    return replace(work, dtype="tf32") if is_product else work
