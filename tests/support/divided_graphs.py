"""Zoo models traced once, and what must hold of any graph that a strategy has divided."""

from __future__ import annotations

import math
from functools import cache

from foretrain.workloads.graph import Graph, Nature, Phase, Role
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import trace_workload, workload_of


@cache
def graph(model: str, **options: object) -> Graph:
    """A model of the zoo at batch 2, traced once."""
    return trace_workload(workload_of(WorkloadRequest(model, batch=2, **options)))  # type: ignore[arg-type]


def matrix_flop(of: Graph) -> float:
    """The work of a step."""
    return sum(op.work.flop for op in operators(of) if op.work.kind in MATRIX_KINDS)


def role_bytes(of: Graph, role: Role) -> int:
    """The memory all buffers of a role would take together."""
    return sum(of.buffer_bytes(i) for i, buffer in enumerate(of.buffers) if buffer.role is role)


def check_shapes(of: Graph) -> None:
    """Products and elementwise calls have operands that go together."""
    for call in of.calls:
        if call.phase is Phase.OPTIMIZER:
            continue
        given = [of.specs[spec].shape for spec in call.inputs if spec >= 0]
        made = [of.specs[spec].shape for spec in call.outputs if spec >= 0]
        if call.name in ("aten.mm", "aten.bmm", "aten.addmm"):
            left, right = given[-2:]
            assert left[-1] == right[-2], call
            assert made[0] == (*left[:-1], right[-1]), call
        elif call.name == "foretrain.attention":
            assert made[0] == given[0], call
            assert given[0][1] % given[1][1] == 0, call
        elif call.nature is Nature.POINTWISE and made and call.name != "foretrain.fused":
            assert _broadcast(given) == made[0], call
        elif call.name in ("aten.view", "aten._unsafe_view", "aten.transpose", "aten._to_copy"):
            assert math.prod(given[0]) == math.prod(made[0]), call


def check_parameters(of: Graph) -> None:
    """Gradients and copies in half precision are as large as the parameter is now."""
    elements = {b.name: of.specs[b.spec].elements for b in of.buffers if b.role is Role.PARAMETER}
    for buffer in of.buffers:
        if buffer.role in (Role.GRADIENT, Role.CAST_WEIGHT):
            assert of.specs[buffer.spec].elements == elements[buffer.name], buffer


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    sizes = [set(axis) - {1} or {1} for axis in zip(*padded, strict=True)]
    assert all(len(size) == 1 for size in sizes), shapes
    return tuple(size.pop() for size in sizes)
