"""One graph at every batch size or sequence length.

The shapes of a training step are multilinear in batch and sequence length: every size of every tensor is
c₀ + c₁·batch + c₂·length + c₃·batch·length. So a graph recorded at two values of each axis determines it at
all others, exactly, as long as the calls themselves do not change. Where they do (an image size changes how a
convolution rounds, a loss loops over the batch) the graph is not derivable and is traced anew.

The number of equal blocks is one more axis: a family of a deep model is two families of a few blocks, from
which `depth` derives the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from foretrain.workloads.depth import NotDerivable, deepen
from foretrain.workloads.executed import ExecutedGraph, offload_optimizer
from foretrain.workloads.graph import Graph, Spec

__all__ = ["Family", "NotDerivable", "RecordedAxis", "derive_family"]


class RecordedAxis(NamedTuple):
    """One thing that varies, and the two values it was recorded at."""

    name: str
    low: int
    high: int


@dataclass(frozen=True)
class Family:
    """A graph with the specs it has at each corner of the recorded values.

    `corners[i]` are the specs at one combination, in the order of `itertools.product` over (low, high) of the
    axes; all corners have one spec for each spec of `recorded`, which is the first corner.

    With `deeper`, a family of one block more, the graphs of this family have `extra` blocks more than those.
    """

    axes: tuple[RecordedAxis, ...]
    recorded: Graph
    corners: tuple[tuple[Spec, ...], ...]
    counts: tuple[tuple[int, int], ...]
    deeper: Family | None = None
    extra: int = 0

    @cached_property
    def graph(self) -> Graph:
        """The graph at the low values."""
        return self.at({})

    def at(self, values: Mapping[str, int]) -> Graph:
        """The graph at other values of the axes; an axis that is not named stays at its low value."""
        own = self._recorded_at(values)
        return own if self.deeper is None else deepen(own, self.deeper.at(values), self.extra)

    def _recorded_at(self, values: Mapping[str, int]) -> Graph:
        weights = self._weights(values)
        specs = tuple(
            Spec(_mix([corner.shape for corner in spec_at_corners], weights), spec_at_corners[0].dtype)
            for spec_at_corners in zip(*self.corners, strict=True)
        )
        samples, tokens = _mix(self.counts, weights)
        return self.recorded.with_specs(specs, batch=samples, samples=samples, tokens=tokens)

    def executed_at(self, values: Mapping[str, int]) -> ExecutedGraph:
        """The graph at other values of the axes as it runs; kernels are chosen once for the family."""
        return ExecutedGraph(offload_optimizer(self.at(values)), self._first)

    def changed(self, change: Callable[[Graph], Graph]) -> Family:
        """The family of changed graphs on the same shapes; their dtypes hold at every corner."""
        graph = change(self.recorded)
        corners = tuple(
            tuple(at._replace(dtype=spec.dtype) for at, spec in zip(corner, graph.specs, strict=True))
            for corner in self.corners
        )
        deeper = None if self.deeper is None else self.deeper.changed(change)
        return replace(self, recorded=graph, corners=corners, deeper=deeper)

    @cached_property
    def _first(self) -> ExecutedGraph:
        return ExecutedGraph(offload_optimizer(self.graph))

    def _weights(self, values: Mapping[str, int]) -> tuple[float, ...]:
        shares = []
        for axis in self.axes:
            share = (values.get(axis.name, axis.low) - axis.low) / (axis.high - axis.low)
            shares.append((1 - share, share))
        return tuple(math.prod(combination) for combination in itertools.product(*shares))


def derive_family(axes: Sequence[RecordedAxis], graphs: Sequence[Graph]) -> Family:
    """The family through graphs recorded at the corners of `axes`; raises `NotDerivable` if there is none."""
    first = graphs[0]
    for other in graphs[1:]:
        _check_same_structure(first, other)
    joint = _JointSpecs(graphs)
    calls = tuple(
        call._replace(
            inputs=joint.of([graph.calls[index].inputs for graph in graphs]),
            outputs=joint.of([graph.calls[index].outputs for graph in graphs]),
        )
        for index, call in enumerate(first.calls)
    )
    buffers = tuple(
        buffer._replace(spec=joint.of([(graph.buffers[index].spec,) for graph in graphs])[0])
        for index, buffer in enumerate(first.buffers)
    )
    layers = tuple(
        layer._replace(outputs=joint.of([graph.layers[index].outputs for graph in graphs]))
        for index, layer in enumerate(first.layers)
    )
    return Family(
        axes=tuple(axes),
        recorded=replace(first, specs=joint.corner(0), calls=calls, buffers=buffers, layers=layers),
        corners=tuple(joint.corner(index) for index in range(len(graphs))),
        counts=tuple((graph.samples, graph.tokens) for graph in graphs),
    )


class _JointSpecs:
    """Specs numbered by their value at every corner: what is 32 at one batch size need not be at another."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self._specs = [graph.specs for graph in graphs]
        self._numbers: dict[tuple[int, ...], int] = {}

    def of(self, indices_by_graph: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Joint numbers of the specs that stand at the same places in every graph."""
        return tuple(
            -1 if together[0] < 0 else self._numbers.setdefault(together, len(self._numbers))
            for together in zip(*indices_by_graph, strict=True)
        )

    def corner(self, graph: int) -> tuple[Spec, ...]:
        """All specs as they are in one of the graphs."""
        return tuple(self._specs[graph][together[graph]] for together in self._numbers)


def _check_same_structure(one: Graph, other: Graph) -> None:
    if len(one.calls) != len(other.calls) or len(one.buffers) != len(other.buffers):
        raise NotDerivable(f"{len(one.calls)} calls at one size, {len(other.calls)} at another")
    for a, b in zip(one.calls, other.calls, strict=True):
        same = a.name == b.name and a.settings == b.settings and a.reads == b.reads and a.writes == b.writes
        if not same or len(a.inputs) != len(b.inputs) or len(a.outputs) != len(b.outputs):
            raise NotDerivable(f"{a.name} in {a.module or 'the root'} is called differently at another size")
    for x, y in zip(one.buffers, other.buffers, strict=True):
        if (x.born, x.dies, x.role) != (y.born, y.dies, y.role):
            raise NotDerivable("memory lives differently at another size")


def _mix(sizes_at_corners: Sequence[Sequence[int]], weights: Sequence[float]) -> tuple[int, ...]:
    """Σ weight · size for each size, which must come out whole and not negative."""
    mixed = []
    for at_corners in zip(*sizes_at_corners, strict=True):
        if len(set(at_corners)) == 1:
            mixed.append(at_corners[0])
            continue
        value = math.fsum(size * weight for size, weight in zip(at_corners, weights, strict=True))
        # Sizes are whole numbers; weights are not exact, so that a sum may miss one by rounding.
        whole = round(value)
        if abs(value - whole) > 1e-6 * max(1.0, abs(value)) or whole < 0:
            raise NotDerivable(f"a size would be {value:.3f}")
        mixed.append(whole)
    return tuple(mixed)
