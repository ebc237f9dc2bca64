"""The book of all rules, and the walk that applies them to a graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from foretrain.workloads.graph import Call, Graph
from foretrain.workloads.ops import Kind, Op, Work
from foretrain.workloads.rules import convolution, matrix, sequence, vector
from foretrain.workloads.rules.site import Rule, resolve


@cache
def _rules() -> Mapping[str, Rule]:
    book: dict[str, Rule] = {}
    for chapter in (matrix.RULES, convolution.RULES, sequence.RULES, vector.RULES):
        twice = book.keys() & chapter.keys()
        assert not twice, f"two rules for {sorted(twice)}"
        book.update(chapter)
    return book


def operators(graph: Graph) -> tuple[Op, ...]:
    """The operators of a graph, in execution order. Calls alike in every respect share one `Work`."""
    works: dict[int, tuple[Work, ...]] = {}
    found: list[Op] = []
    for index, (call, first) in enumerate(zip(graph.calls, graph.alike, strict=True)):
        if first == index:
            works[index] = _works(graph, call)
        found += [
            Op(work, index, call.name, call.phase, call.module, call.recomputed) for work in works[first]
        ]
    return tuple(found)


def unknown_names(ops: tuple[Op, ...]) -> tuple[str, ...]:
    """Names of the operators no rule knows; their FLOP are not counted."""
    return tuple(sorted({op.name for op in ops if op.work.kind is Kind.UNKNOWN}))


def _works(graph: Graph, call: Call) -> tuple[Work, ...]:
    rule = _rules().get(call.name, vector.by_nature)
    return rule(resolve(graph, call))
