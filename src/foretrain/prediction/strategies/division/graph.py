"""The divided graph of a step from the result of a walk, and the degrees that divide all its sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from foretrain.prediction.strategies.division.flow import Flow, Marks
from foretrain.prediction.strategies.division.shapes import divided
from foretrain.workloads.graph import NO_TENSOR, Graph, Layer, Role, Spec, Structure

Share = Callable[[Spec, int, int], Spec]
"""The share of a spec, from its mark and the number of devices."""


def divide(graph: Graph, flow: Flow, degree: int, share_of: Share = divided) -> Graph:
    """The graph of one of `degree` devices: the same calls on divided specs."""
    shares = _Shares(graph, degree, share_of)
    share = shares.of
    calls = tuple(
        call
        if inputs is None or outputs is None
        else call._replace(inputs=shares.row(call.inputs, inputs), outputs=shares.row(call.outputs, outputs))
        for call, inputs, outputs in zip(graph.calls, flow.inputs, flow.outputs, strict=True)
    )
    shared = list(graph.buffers)
    for index, outer in flow.buffers.items():
        shared[index] = shared[index]._replace(spec=share(shared[index].spec, outer))
    buffers = tuple(shared)
    return replace(
        graph,
        calls=calls,
        buffers=buffers,
        layers=_layers(graph, flow, degree),
        specs=tuple(shares.specs),
        structure=Structure(calls, buffers, same_wiring=graph.structure),
    )


class _Shares:
    """Builds the specs of shares, each once."""

    def __init__(self, graph: Graph, degree: int, share_of: Share) -> None:
        self._share_of = share_of
        self.specs: list[Spec] = list(graph.specs)
        self._index = {spec: index for index, spec in enumerate(graph.specs)}
        self._known: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[Marks, Marks], Marks] = {}
        self._degree = degree

    def of(self, spec: int, outer: int) -> int:
        """The index of a spec's share."""
        index = self._known.get((spec, outer))
        if index is None:
            share = self._share_of(self.specs[spec], outer, self._degree)
            index = self._index.setdefault(share, len(self.specs))  # the graph may list a spec twice
            if index == len(self.specs):
                self.specs.append(share)
            self._known[spec, outer] = index
        return index

    def row(self, specs: Marks, marks: Marks) -> Marks:
        """The shares of all specs of a call."""
        shares = self._rows.get((specs, marks))
        if shares is None:
            pairs = zip(specs, marks, strict=True)
            shares = tuple(
                [spec if spec == NO_TENSOR or not mark else self.of(spec, mark) for spec, mark in pairs]
            )
            self._rows[specs, marks] = shares
        return shares


def _layers(graph: Graph, flow: Flow, degree: int) -> tuple[Layer, ...]:
    """Layers with the number of their parameters on one device."""
    removed: dict[str, int] = {}
    for index, outer in flow.buffers.items():
        buffer = graph.buffers[index]
        if buffer.role is Role.PARAMETER:
            path = buffer.name.rpartition(".")[0]
            spec = graph.specs[buffer.spec]
            elsewhere = spec.elements - divided(spec, outer, degree).elements
            removed[path] = removed.get(path, 0) + elsewhere
    return tuple(
        layer._replace(parameters=max(0, layer.parameters - removed[layer.path]))
        if layer.path in removed
        else layer
        for layer in graph.layers
    )


def common_degrees(sizes: Collection[int], most: int) -> tuple[int, ...]:
    """The degrees up to `most` that divide all sizes."""
    return tuple(degree for degree in range(1, most + 1) if not any(size % degree for size in sizes))


def nearest_degrees(sizes: Collection[int], degree: int) -> str:
    """A text with the two nearest degrees that divide all sizes."""
    common = math.gcd(*sizes)
    works = common_degrees([common], common)
    near = sorted(works, key=lambda divisor: (abs(divisor - degree), -divisor))[:2]
    return f"nearest degrees that do: {' and '.join(map(str, sorted(near)))}"
