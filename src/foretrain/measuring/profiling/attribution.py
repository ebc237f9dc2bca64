"""From events of a trace to seconds of each phase, kind of operator and layer.

An operator whose name has a kind takes all the time of what is nested in it. The time of one without is
divided over the kinds of its parts. On a GPU the time is that of the kernels an operator launched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from foretrain.errors import InvalidData
from foretrain.measuring.profiling.kineto import (
    BACKWARD,
    MODULE,
    OPERATOR,
    STEP,
    UPDATE,
    ZERO_GRADIENTS,
    CallNode,
    KinetoTrace,
    TraceEvent,
)
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import operators

LAYER = "foretrain.layer "
"""Annotations of a layer by its path, as `profile` itself makes them."""
_WARM_UP_STEPS = 1
_FEWEST_STEPS = 3
_COMPOSITE: Mapping[str, Kind] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "_convolution", "conv_transpose2d"), Kind.CONVOLUTION),
    **dict.fromkeys(("mkldnn_convolution", "cudnn_convolution", "miopen_convolution"), Kind.CONVOLUTION),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu", "_cudnn_rnn", "mkldnn_rnn_layer"), Kind.RNN),
    **dict.fromkeys(("_cudnn_rnn_backward", "mkldnn_rnn_layer_backward"), Kind.RNN),
    **dict.fromkeys(("batch_norm", "layer_norm", "group_norm", "rms_norm"), Kind.NORMALISATION),
    **dict.fromkeys(("cudnn_batch_norm_backward", "_batch_norm_impl_index"), Kind.NORMALISATION),
    **dict.fromkeys(("softmax", "log_softmax"), Kind.SOFTMAX),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "max_pool1d"), Kind.POOLING),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout_backward"), Kind.DROPOUT),
    "scaled_dot_product_attention": Kind.ATTENTION,
    "linear": Kind.LINEAR,
    "embedding_backward": Kind.EMBEDDING,
    "copy_": Kind.COPY,
}
"""Kinds of operators that a trace of eager PyTorch shows and a recorded graph has under other names."""
_ATTENTION = ("_scaled_dot_product_", "_flash_attention", "_efficient_attention", "_fused_sdp")
_ACCUMULATE = "AccumulateGrad"

Key = tuple[Phase, Kind, str]
"""Phase, kind of operator and path of the layer."""
_Place = tuple[Phase, str]
"""Phase and path of the layer."""


@dataclass(frozen=True)
class MeasuredOperators:
    """Median seconds of a step by phase, kind and layer; `step_seconds` is the median of whole steps.

    `idle_seconds` is the part of a step in which no operator (on a GPU: no kernel) ran.
    """

    steps: int
    dropped_steps: int
    step_seconds: float
    idle_seconds: float
    seconds: Mapping[Key, float]
    calls: Mapping[Key, int] = field(default_factory=dict)
    unlinked_kernels: int = 0


def measured_operators(trace: KinetoTrace, graph: Graph) -> MeasuredOperators:
    """The operators of the steps of a trace of a model, as the kinds and layers of its graph."""
    windows = trace.steps
    dropped = _WARM_UP_STEPS if len(windows) >= _FEWEST_STEPS else 0
    attribution = _Attribution(trace, graph)
    steps = [attribution.step(*window) for window in windows[dropped:]]
    totals = [(end - start) * 1e-6 for start, end in windows[dropped:]]
    keys = {key for taken, _, _ in steps for key in taken}
    seconds = {key: median([taken.get(key, 0.0) for taken, _, _ in steps]) for key in keys}
    if not any(seconds.values()):
        what = "kernels linked to its operators" if trace.has_kernels else "operators inside its steps"
        raise InvalidData(trace.file, f"has no {what}; profile whole steps with CPU and GPU activities")
    busy = [busy for _, _, busy in steps]
    return MeasuredOperators(
        steps=len(steps),
        dropped_steps=dropped,
        step_seconds=median(totals),
        idle_seconds=median([max(0.0, total - used) for total, used in zip(totals, busy, strict=True)]),
        seconds=seconds,
        calls={key: round(median([calls.get(key, 0) for _, calls, _ in steps])) for key in keys},
        unlinked_kernels=trace.unlinked_kernels,
    )


class _Attribution:
    """What the steps of a trace share: kinds by name, layers by annotation, layers by sequence number."""

    def __init__(self, trace: KinetoTrace, graph: Graph) -> None:
        self._trace = trace
        self._kinds = _GraphKinds(graph)
        self._layers = _Layers(graph)
        self._layer_of_sequence: dict[int, str] = {}

    def step(self, start: float, end: float) -> tuple[Mapping[Key, float], Mapping[Key, int], float]:
        """Seconds and calls of the operators that start within a window, and the seconds any of them ran."""
        seconds: dict[Key, float] = defaultdict(float)
        calls: dict[Key, int] = defaultdict(int)
        intervals: list[tuple[float, float]] = []
        for root in self._trace.roots:
            if root.event.end <= start or root.event.start >= end:
                continue
            for node, (phase, layer) in self._units(root, (Phase.FORWARD, ""), start, end):
                for kind, taken in self._shares(node, (phase, layer)).items():
                    key = (phase, kind, layer)
                    seconds[key] += taken
                    calls[key] += 1
                intervals += self._intervals(node)
        return seconds, calls, _union_seconds(intervals)

    def _units(
        self, node: CallNode, place: _Place, start: float, end: float
    ) -> Iterator[tuple[CallNode, _Place]]:
        """The outermost operators of a tree that start within a window, with their phase and layer."""
        event = node.event
        place = self._inside(event, place)
        is_wrapper = event.category != OPERATOR or event.name.startswith((STEP, UPDATE, ZERO_GRADIENTS))
        if not is_wrapper and event.start >= start and event.start < end:
            phase, layer = place
            if phase is Phase.FORWARD:
                self._note_sequences(node, layer)
            yield node, place
            return
        for child in node.children:
            yield from self._units(child, place, start, end)

    def _inside(self, event: TraceEvent, place: _Place) -> _Place:
        """Phase and layer of what is nested in an event."""
        if event.name.startswith((UPDATE, ZERO_GRADIENTS)):
            return Phase.OPTIMIZER, ""
        if event.name.startswith(BACKWARD):
            layer = self._layer_of_sequence.get(event.sequence, "") if event.sequence is not None else ""
            return Phase.BACKWARD, layer
        named = self._layers.of(event)
        return place if named is None else (place[0], named)

    def _note_sequences(self, node: CallNode, layer: str) -> None:
        """Remember the layer of sequence numbers: an operator without a gradient passes its number on."""
        for inner in node.walk():
            if inner.event.sequence is not None:
                self._layer_of_sequence[inner.event.sequence] = layer

    def _shares(self, node: CallNode, place: _Place) -> dict[Kind, float]:
        """The seconds of an operator by kind."""
        if place[0] is Phase.OPTIMIZER:
            return {Kind.OPTIMIZER: self._seconds(node)}
        kind = self._kinds.of(node.event.name, place)
        if kind is not None and kind is not Kind.VIEW:
            return {kind: self._seconds(node)}
        parts: dict[Kind, float] = defaultdict(float)
        for child in node.children:
            for inner, seconds in self._shares(child, place).items():
                parts[inner] += seconds
        return self._with_own_seconds(node, kind, parts)

    def _with_own_seconds(
        self, node: CallNode, kind: Kind | None, parts: dict[Kind, float]
    ) -> dict[Kind, float]:
        """The parts of an operator scaled to its whole time; views only where there is nothing else."""
        working = {each: seconds for each, seconds in parts.items() if each is not Kind.VIEW and seconds > 0}
        whole = self._seconds(node)
        if not working:
            return {kind or (Kind.VIEW if Kind.VIEW in parts else Kind.UNKNOWN): whole}
        scale = whole / sum(working.values())
        return {each: seconds * scale for each, seconds in working.items()}

    def _seconds(self, node: CallNode) -> float:
        if not self._trace.has_kernels:
            return node.event.seconds
        return sum(kernel.seconds for kernel in self._kernels(node))

    def _kernels(self, node: CallNode) -> Iterator[TraceEvent]:
        for inner in node.walk():
            if inner.event.category == OPERATOR and inner.event.external_id is not None:
                yield from self._trace.kernels.get(inner.event.external_id, ())

    def _intervals(self, node: CallNode) -> list[tuple[float, float]]:
        if not self._trace.has_kernels:
            return [(node.event.start, node.event.end)]
        return [(kernel.start, kernel.end) for kernel in self._kernels(node)]


def _union_seconds(intervals: list[tuple[float, float]]) -> float:
    """Seconds covered by at least one interval."""
    covered, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered * 1e-6


class _GraphKinds:
    """Kinds of operators by name: as the graph has them in the same layer or phase, else by name alone."""

    def __init__(self, graph: Graph) -> None:
        self._known: dict[tuple[str, str, str], Kind] = {}
        for op in operators(graph):
            if op.work.kernels and op.work.kind is not Kind.UNKNOWN:
                name = op.name.partition(".")[2]
                for where in ((op.phase, op.module), (op.phase, "*"), ("*", "*")):
                    self._known.setdefault((name, *where), op.work.kind)
        self._has_attention = Kind.ATTENTION in self._known.values()

    def of(self, full_name: str, place: _Place) -> Kind | None:
        """The kind of an operator of a trace; None if only its parts have one."""
        namespace, _, name = full_name.partition("::")
        if namespace not in ("aten", "torchvision", "foretrain"):
            return None
        for candidate in dict.fromkeys((name, name.rstrip("_"))):
            for where in (place, (place[0], "*"), ("*", "*")):
                kind = self._known.get((candidate, *where))
                if kind is not None:
                    return kind
        kind = _kind_by_name(name)
        return None if kind is Kind.ATTENTION and not self._has_attention else kind


@cache
def _kind_by_name(name: str) -> Kind | None:
    if name in _COMPOSITE:
        return _COMPOSITE[name]
    if any(part in name for part in _ATTENTION):
        return Kind.ATTENTION
    return _declared_kind(name)


def _declared_kind(name: str) -> Kind | None:
    """The kind of an operator by what PyTorch declares of it, where torch is installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    packet = getattr(torch.ops.aten, name, None)
    overloads: Callable[[], list[str]] | None = getattr(packet, "overloads", None)
    if overloads is None:
        return None
    declared: Any = getattr(packet, overloads()[0])
    if torch.Tag.pointwise in declared.tags:
        return Kind.ELEMENTWISE
    return Kind.VIEW if declared.is_view else None


class _Layers:
    """Paths of layers by annotation: foretrain's own, a record_function with the path, or `nn.Module`.

    With stacks, torch.profiler names modules by class and number (`nn.Module: Linear_3`), numbered in the
    order of their first call, as the layers of a graph are listed.
    """

    def __init__(self, graph: Graph) -> None:
        self._paths = {call.module for call in graph.calls} | {layer.path for layer in graph.layers}
        self._numbered: dict[str, str] = {}
        counts: dict[str, int] = defaultdict(int)
        for path, kind in dict.fromkeys((layer.path, layer.type) for layer in graph.layers):
            self._numbered[f"{kind}_{counts[kind]}"] = path
            counts[kind] += 1

    def of(self, event: TraceEvent) -> str | None:
        """The layer that an annotation names; None for all other events."""
        if event.category == OPERATOR:
            return None
        if event.name.startswith(LAYER):
            return event.name.removeprefix(LAYER)
        if event.name.startswith(MODULE):
            return self._numbered.get(event.name.removeprefix(MODULE))
        return event.name if event.name in self._paths and event.name else None
