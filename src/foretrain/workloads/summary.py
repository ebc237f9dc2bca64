"""What a trace says at a glance: parameters, FLOP, bytes, by phase, by kind and by layer.

`Trace` is the answer of the verb `trace`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.units import format_bytes, format_flop
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.ops import MATRIX_KINDS, Kind, Op
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.workload import Workload, description


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """One phase of the step. `flop` are those of matrix products, convolutions, attention and RNNs (the
    model's work); `vector_flop` all others; `bytes` compulsory traffic."""

    operators: int
    kernels: int
    flop: float
    vector_flop: float
    bytes: float


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """One leaf module: what it puts out, its parameters, and its share of the work."""

    path: str
    type: str
    output_shapes: tuple[tuple[int, ...], ...]
    parameters: int
    forward_flop: float
    backward_flop: float
    forward_bytes: float
    backward_bytes: float


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The whole step. `forward_backward_bytes_per_sample` is what layer tables print: every layer's output
    and its gradient."""

    samples: int
    tokens: int
    parameters: int
    trainable_parameters: int
    parameter_bytes: int
    forward: PhaseSummary
    backward: PhaseSummary
    optimizer: PhaseSummary
    forward_backward_flop: float
    forward_backward_bytes_per_sample: float
    activation_bytes: int
    bytes_by_kind: dict[str, float]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]
    layers: tuple[LayerSummary, ...]


def summarise(graph: Graph) -> TraceSummary:
    """The summary of a graph."""
    ops = operators(graph)
    phases = {phase: _phase(op for op in ops if op.phase is phase) for phase in Phase}
    layers = _layers(graph, ops)
    made = {
        layer.path for layer in layers if layer.forward_bytes > 0
    }  # a layer that only views makes nothing
    outputs = sum(
        graph.specs[index].bytes for layer in graph.layers if layer.path in made for index in layer.outputs
    )
    return TraceSummary(
        samples=graph.samples,
        tokens=graph.tokens,
        parameters=graph.parameters,
        trainable_parameters=graph.trainable_parameters,
        parameter_bytes=_bytes(graph, Role.PARAMETER),
        forward=phases[Phase.FORWARD],
        backward=phases[Phase.BACKWARD],
        optimizer=phases[Phase.OPTIMIZER],
        forward_backward_flop=phases[Phase.FORWARD].flop + phases[Phase.BACKWARD].flop,
        forward_backward_bytes_per_sample=2 * outputs / graph.samples,
        activation_bytes=_bytes(graph, Role.ACTIVATION),
        bytes_by_kind=_bytes_by_kind(ops),
        unknown=unknown_names(ops),
        notes=graph.notes,
        layers=layers,
    )


def _phase(ops: Iterable[Op]) -> PhaseSummary:
    listed = [op.work for op in ops]
    matrix = sum(work.flop for work in listed if work.kind in MATRIX_KINDS)
    return PhaseSummary(
        operators=sum(work.kind is not Kind.VIEW for work in listed),
        kernels=sum(work.kernels for work in listed),
        flop=matrix,
        vector_flop=sum(work.flop for work in listed) - matrix,
        bytes=sum(work.read_bytes + work.write_bytes for work in listed),
    )


def _bytes(graph: Graph, role: Role) -> int:
    return sum(graph.specs[buffer.spec].bytes for buffer in graph.buffers if buffer.role is role)


def _bytes_by_kind(ops: Iterable[Op]) -> dict[str, float]:
    totals: dict[str, float] = defaultdict(float)
    for op in ops:
        if op.work.kind is not Kind.VIEW:
            totals[op.work.kind.value] += op.work.read_bytes + op.work.write_bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def _layers(graph: Graph, ops: Iterable[Op]) -> tuple[LayerSummary, ...]:
    """Leaf modules in order of first execution; a module that runs twice is listed once, its work summed."""
    flop: dict[tuple[str, bool], float] = defaultdict(float)
    moved: dict[tuple[str, bool], float] = defaultdict(float)
    for op in ops:
        if op.phase is not Phase.OPTIMIZER:
            place = (op.module, op.phase is Phase.FORWARD)
            flop[place] += op.work.flop if op.work.kind in MATRIX_KINDS else 0.0
            moved[place] += op.work.read_bytes + op.work.write_bytes
    first = {layer.path: layer for layer in reversed(graph.layers)}
    ordered = dict.fromkeys(layer.path for layer in graph.layers)
    return tuple(
        LayerSummary(
            path=path,
            type=first[path].type,
            output_shapes=tuple(graph.specs[index].shape for index in first[path].outputs),
            parameters=first[path].parameters,
            forward_flop=flop[path, True],
            backward_flop=flop[path, False],
            forward_bytes=moved[path, True],
            backward_bytes=moved[path, False],
        )
        for path in ordered
    )


@dataclass(frozen=True)
class Trace(Answer):
    """A workload and the summary of its step; `with_layers` adds the table of layers to `to_dict`."""

    workload: Workload
    step: TraceSummary
    with_layers: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        step = self.step
        encoded: dict[str, Any] = encode(step)
        if not self.with_layers:
            encoded.pop("layers")
        encoded["flop"] = {
            "forward": step.forward.flop,
            "backward": step.backward.flop,
            "forward_backward": step.forward_backward_flop,
        }
        encoded["coverage"] = {"unmodelled": encoded.pop("unknown")}
        return {"workload": description(self.workload, step.samples, step.tokens), **encoded}

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Parameters, FLOP and bytes."""
        step = self.step
        return (
            ("model", self.workload.source.name),
            ("samples", f"{step.samples:,}"),
            ("parameters", f"{step.parameters:,}"),
            ("forward + backward", format_flop(step.forward_backward_flop)),
            ("saved activations", format_bytes(step.activation_bytes)),
        )
