"""Dividing a graph.

A step's graph with its tensors divided as a walk found.

Degrees that divide all sizes of a model that have to be divided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from foretrain.prediction.strategies.division.flow import Flow, Marks
from foretrain.prediction.strategies.division.shapes import divided
from foretrain.workloads.graph import NO_TENSOR, Graph, Layer, Role, Spec

Share = Callable[[Spec, int, int], Spec]
"""From a spec, where it is divided and by how many devices, to what one of them has."""


def divide(graph: Graph, flow: Flow, degree: int, share_of: Share = divided) -> Graph:
    """The graph one of `degree` devices runs: the same calls on divided specs. What was found out about the
    calls' structure is kept."""
    shares = _Shares(graph, degree, share_of)
    share = shares.of
    calls = [
        call
        if inputs is None or outputs is None
        else call._replace(inputs=shares.row(call.inputs, inputs), outputs=shares.row(call.outputs, outputs))
        for call, inputs, outputs in zip(graph.calls, flow.inputs, flow.outputs, strict=True)
    ]
    buffers = list(graph.buffers)
    for index, outer in flow.buffers.items():
        buffers[index] = buffers[index]._replace(spec=share(buffers[index].spec, outer))
    other = replace(
        graph,
        calls=tuple(calls),
        buffers=tuple(buffers),
        layers=_layers(graph, flow, degree),
        specs=tuple(shares.specs),
    )
    for structural in ("producers", "saved"):
        if structural in graph.__dict__:
            other.__dict__[structural] = graph.__dict__[structural]
    return other


class _Shares:
    """Specs of shares, each kept once."""

    def __init__(self, graph: Graph, degree: int, share_of: Share) -> None:
        self._share_of = share_of
        self.specs: list[Spec] = list(graph.specs)
        self._index = {spec: index for index, spec in enumerate(graph.specs)}
        self._known: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[Marks, Marks], Marks] = {}
        self._degree = degree

    def of(self, spec: int, outer: int) -> int:
        """The index of a spec's share."""
        found = self._known.get((spec, outer))
        if found is None:
            share = self._share_of(self.specs[spec], outer, self._degree)
            found = self._index.setdefault(share, len(self.specs))  # the graph may list a spec twice
            if found == len(self.specs):
                self.specs.append(share)
            self._known[spec, outer] = found
        return found

    def row(self, specs: Marks, marks: Marks) -> Marks:
        """All specs of a call."""
        found = self._rows.get((specs, marks))
        if found is None:
            pairs = zip(specs, marks, strict=True)
            found = tuple(
                [spec if spec == NO_TENSOR or not mark else self.of(spec, mark) for spec, mark in pairs]
            )
            self._rows[specs, marks] = found
        return found


def _layers(graph: Graph, flow: Flow, degree: int) -> tuple[Layer, ...]:
    """Layers with the parameters a device keeps of them."""
    saved: dict[str, int] = {}
    for index, outer in flow.buffers.items():
        buffer = graph.buffers[index]
        if buffer.role is Role.PARAMETER:
            path = buffer.name.rpartition(".")[0]
            spec = graph.specs[buffer.spec]
            gone = spec.elements - divided(spec, outer, degree).elements
            saved[path] = saved.get(path, 0) + gone
    return tuple(
        layer._replace(parameters=max(0, layer.parameters - saved[layer.path]))
        if layer.path in saved
        else layer
        for layer in graph.layers
    )


def common_degrees(sizes: Collection[int], most: int) -> tuple[int, ...]:
    """The degrees up to `most` that divide all sizes."""
    return tuple(degree for degree in range(1, most + 1) if not any(size % degree for size in sizes))


def nearest_degrees(sizes: Collection[int], degree: int) -> str:
    """The two degrees nearest to one that does not divide all sizes, in words."""
    common = math.gcd(*sizes)
    works = common_degrees([common], common)
    near = sorted(works, key=lambda divisor: (abs(divisor - degree), -divisor))[:2]
    return f"nearest degrees that do: {' and '.join(map(str, sorted(near)))}"
