"""What a rule may look at: one call with its specs, and the bytes it moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from foretrain.workloads.graph import NO_TENSOR, Call, Graph, Nature, Phase, Spec
from foretrain.workloads.ops import Direction, Work

Rule = Callable[["Site"], tuple[Work, ...]]


class Site(NamedTuple):
    """One call, resolved; a recomputed one is forward work again.

    `weighted`: it reads a parameter; `of_weighted`: it differentiates one that did.
    """

    name: str
    phase: Phase
    nature: Nature
    settings: Mapping[str, Any]
    inputs: tuple[Spec | None, ...]
    outputs: tuple[Spec | None, ...]
    read_bytes: int
    write_bytes: int
    weighted: bool
    of_weighted: bool
    is_channels_last: bool

    def input(self, position: int) -> Spec:
        """The tensor argument at a position, which must be given."""
        spec = self.inputs[position]
        assert spec is not None, f"{self.name} has no tensor argument {position}"
        return spec

    def output(self, position: int = 0) -> Spec:
        """The result at a position, which must exist."""
        spec = self.outputs[position]
        assert spec is not None, f"{self.name} has no result {position}"
        return spec

    @property
    def dtype(self) -> str:
        """The type computed in: that of the first floating-point operand."""
        for spec in (*self.inputs, *self.outputs):
            if spec is not None and "float" in spec.dtype:
                return spec.dtype
        first = next((spec for spec in (*self.outputs, *self.inputs) if spec is not None), None)
        return first.dtype if first else "float32"

    @property
    def channels_last(self) -> int:
        """1 where the images a call works on lie channels-last in memory, else 0."""
        return int(self.is_channels_last)

    @property
    def direction(self) -> Direction:
        """Forward, backward or update, by phase."""
        if self.phase is Phase.OPTIMIZER:
            return Direction.UPDATE
        return Direction.BACKWARD if self.phase is Phase.BACKWARD else Direction.FORWARD

    @property
    def elements(self) -> int:
        """Elements of the largest operand."""
        shapes = [spec.shape for spec in (*self.inputs, *self.outputs) if spec is not None]
        return max(map(math.prod, shapes), default=0)


def resolve(graph: Graph, call: Call, sizes: Sequence[int]) -> Site:
    """A call with its specs looked up and its traffic summed; `sizes` are the bytes of `graph.specs`."""
    specs, buffers = graph.specs, graph.buffers
    operands = sum([sizes[index] for index in call.inputs if index != NO_TENSOR])
    behind = sum([sizes[buffers[buffer].spec] for buffer in call.reads])
    written = sum([sizes[index] for index in call.outputs if index != NO_TENSOR])
    # A call that changes its operands in place returns no new tensor: it writes the memory behind them.
    if not written:
        written = sum([sizes[buffers[buffer].spec] for buffer in call.writes])
    return Site(
        name=call.name,
        phase=Phase.FORWARD if call.recomputed else call.phase,
        nature=call.nature,
        settings=call.settings,
        inputs=tuple([None if index == NO_TENSOR else specs[index] for index in call.inputs]),
        outputs=tuple([None if index == NO_TENSOR else specs[index] for index in call.outputs]),
        read_bytes=min(operands, behind),  # an expanded tensor is larger than the memory behind it
        write_bytes=written,
        weighted=graph.reads_weight(call),
        of_weighted=call.forward is not None and graph.reads_weight(graph.calls[call.forward]),
        is_channels_last=bool(graph.options.channels_last or call.settings.get("channels_last")),
    )
