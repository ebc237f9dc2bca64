"""Which tensors of a step are divided between devices: a walk over its calls.

Every buffer is whole, divided (see `divided_shapes`) or a partial sum. The walk carries this from operands to
results: views and elementwise work keep a division, a reduction over the divided axis leaves a partial sum,
what cannot work on a part has it gathered first. A strategy says by its `Rule`s what the interesting calls
(products, attention, look-ups) do. Nothing here depends on the number of devices, so one walk serves all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from foretrain.prediction.strategies.division.optimizer_states import owners_of_states, updated
from foretrain.prediction.strategies.division.shapes import (
    WHOLE,
    Shape,
    outer_at,
    relocated,
    same_axis,
    size_at,
)
from foretrain.workloads.fusion import FUSED
from foretrain.workloads.graph import ITEM_BYTES, NO_TENSOR, Call, Graph, Nature, Phase, Role

Marks = tuple[int, ...]


class Movement(NamedTuple):
    """Data that has to move between calls `after` and `before` for the next one to be right."""

    name: str
    kind: str
    bytes: float
    after: int
    before: int


SUM = "sum"
"""Partial sums become their total: an all-reduce."""
SUM_TO_SHARES = "sum to shares"
"""Partial sums become shares of their total: a reduce-scatter."""
GRADIENTS_OF_WHOLE = "gradients of whole parameters"
RING = "ring"
"""Shares pass through all devices, each of which uses them in turn."""
GATHER = "gather"
"""Shares become the whole: an all-gather."""


class Partial(NamedTuple):
    """A partial sum: the bytes per element it was computed in (it travels in no wider type), and the tensors
    whose gradients it is part of."""

    item_bytes: int
    sources: tuple[int, ...] = ()


class Constraint(NamedTuple):
    """Something that must be divisible by the number of devices."""

    size: int
    what: str
    module: str


@dataclass
class Flow:
    """What the walk found: the marks of each call's operands and results (None: all whole) and of each
    buffer, the data that moves, and what must be divisible."""

    inputs: list[Marks | None]
    outputs: list[Marks | None]
    buffers: dict[int, int]
    movements: list[Movement] = field(default_factory=list)
    constraints: dict[tuple[int, str], Constraint] = field(default_factory=dict)
    padded: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Walk:
    """The state of a walk, and the verbs rules are written in."""

    def __init__(
        self,
        graph: Graph,
        rules: Mapping[str, Rule],
        otherwise: Rule,
        *,
        deciders: frozenset[str] = frozenset(),
        scatters: bool = False,
        sums_gradients: bool = True,
    ) -> None:
        self.graph = graph
        self.specs, self.buffers = graph.specs, graph.buffers
        self.shapes: list[Shape] = [spec.shape for spec in graph.specs]
        self.rules, self.otherwise, self.deciders = rules, otherwise, deciders
        self.scatters = scatters
        """Whether a sum of partial results is left divided by tokens."""
        self.sums_gradients = sums_gradients
        """Whether gradients of whole parameters are summed here, or with those of the replicas."""
        self.held: dict[int, int] = {}
        self.by_tokens: set[int] = set()
        self.partial: dict[int, Partial] = {}
        self.awaited: dict[int, int] = {}
        """How many partial gradients a tensor will get; all are summed over the devices at once."""
        self.last_write: dict[int, int] = {}
        self.root: dict[int, int] = {}
        self.gathered: set[tuple[int, Phase, bool]] = set()
        self.weight_name = _weights(graph)
        self.views: dict[tuple[int, int], int] = {}
        self._same_name: dict[str, list[int]] = {}
        for buffer, name in self.weight_name.items():
            self._same_name.setdefault(name, []).append(buffer)
        calls = len(graph.calls)
        self.flow = Flow([None] * calls, [None] * calls, self.held)

    # What is known of an operand

    def operands(self, call: Call) -> list[int]:
        """The buffer behind each tensor argument (-1 where there is none)."""
        inputs, reads = call.inputs, call.reads
        if len(inputs) == len(reads) and NO_TENSOR not in inputs:
            return list(reads)
        present = len(inputs) - inputs.count(NO_TENSOR)
        found, at = [], 0
        for spec in inputs:
            if spec == NO_TENSOR:
                found.append(-1)
                continue
            found.append(reads[min(at, len(reads) - 1)] if reads else -1)
            present -= 1
            left = len(reads) - at - 1
            if left > 0 and (present <= left or self._fits(reads[at + 1], call.inputs[len(found) :])):
                at += 1
        return found

    def _fits(self, buffer: int, following: tuple[int, ...]) -> bool:
        """Whether the next argument could be this buffer."""
        spec = next((spec for spec in following if spec != NO_TENSOR), NO_TENSOR)
        return (
            spec != NO_TENSOR and self.specs[spec].elements == self.specs[self.buffers[buffer].spec].elements
        )

    def mark(self, buffer: int, spec: int) -> int:
        """How the view `spec` of a buffer is divided."""
        outer = self.held.get(buffer, WHOLE)
        if outer == WHOLE:
            return WHOLE
        seen = self.views.get((buffer, spec))
        if seen is not None:
            return seen
        return relocated(self.shapes[self.buffers[buffer].spec], self.shapes[spec], outer)

    def is_stored(self, buffer: int, shape: Shape) -> bool:
        """Whether an activation of this shape is there in full, not a smaller tensor expanded to it."""
        own = self.shapes[self.buffers[buffer].spec]
        return buffer not in self.weight_name and math.prod(own) >= math.prod(shape)

    # What a rule decides

    def emit(
        self, index: int, inputs: Iterable[int], outputs: Iterable[int], by_tokens: bool = False
    ) -> None:
        """Record the marks of a call, and divide what it writes."""
        call = self.graph.calls[index]
        marks = tuple(outputs)
        self.flow.inputs[index], self.flow.outputs[index] = tuple(inputs), marks
        writes = call.writes
        for position, outer in enumerate(marks):
            buffer = writes[min(position, len(writes) - 1)]
            if outer != WHOLE:
                self.held[buffer] = outer
                self.views[buffer, call.outputs[position]] = outer
                if by_tokens:
                    self.by_tokens.add(buffer)
            elif len(writes) == len(marks) and call.nature is not Nature.VIEW:
                self.held.pop(buffer, None)

    def divide_weight(self, name: str, shape_axis: Callable[[Shape], int]) -> None:
        """Divide a parameter, its copies in half precision, and the calls that made those."""
        for buffer in self._same_name.get(name, ()):
            shape = self.shapes[self.buffers[buffer].spec]
            axis = shape_axis(shape)
            outer = outer_at(shape, axis)
            self.held[buffer] = outer
            born = self.buffers[buffer].born
            if born >= 0:
                self.flow.inputs[born], self.flow.outputs[born] = (outer,), (outer,)

    def divide_vector(self, buffer: int) -> None:
        """Divide a bias, or another parameter that is a vector along the divided axis."""
        name = self.weight_name.get(buffer)
        if name is not None and buffer not in self.held:
            self.divide_weight(name, lambda shape: len(shape) - 1)

    def _share_weight_name(self, source: int, copy: int) -> None:
        """A copy of a weight is that weight."""
        if source in self.weight_name and copy not in self.weight_name:
            self.weight_name[copy] = self.weight_name[source]

    def require(self, size: int, what: str, module: str) -> None:
        """Something the number of devices must divide; the first to need a size is named."""
        self.flow.constraints.setdefault((size, what), Constraint(size, what, module))

    def remark(self, note: str) -> None:
        """Something the reader should know, once."""
        if note not in self.flow.notes:
            self.flow.notes.append(note)

    def move(self, name: str, kind: str, size: float, after: int, before: int) -> None:
        """Data that moves."""
        self.flow.movements.append(Movement(name, kind, size, after, before))

    def gather(self, buffer: int, index: int) -> None:
        """Make a divided buffer whole from call `index` on. Inputs can be had whole anywhere."""
        if self.buffers[buffer].role is Role.INPUT:
            return
        if self.held.pop(buffer, None) is not None:
            self.by_tokens.discard(buffer)
            size = self.graph.buffer_bytes(buffer)
            self.move("gather", GATHER, size, self.last_write.get(buffer, -1), index)

    def gather_for(self, buffer: int, index: int) -> None:
        """Make a buffer whole for this call, while its share is what is kept. Calls that read copies of the
        same tensor share one gathering."""
        call = self.graph.calls[index]
        key = (self.root.get(buffer, buffer), call.phase, call.recomputed)
        if key not in self.gathered:
            self.gathered.add(key)
            written = self.last_write.get(buffer, -1)
            is_kept = written < 0 or self.graph.calls[written].phase is not call.phase
            size = self.graph.buffer_bytes(buffer)
            self.move("gather tokens", GATHER, size, index - 1 if is_kept else written, index)

    def settle(self, buffer: int, after: int, before: int, *, scatters: bool = True) -> None:
        """Sum a partial result over the devices; under sequence parallelism each keeps its share of it."""
        item, sources = self.partial.pop(buffer)
        spec = self.buffers[buffer].spec
        size = self.specs[spec].elements * item
        outer = self._token_mark(self.shapes[spec]) if self.scatters and scatters else WHOLE
        if outer != WHOLE:
            self.held[buffer] = outer
            self.by_tokens.add(buffer)
            self.require(size_at(self.shapes[spec], outer), "tokens of a sequence", "")
        if self._is_last(sources):
            kind = SUM if outer == WHOLE else SUM_TO_SHARES
            self.move(kind, kind, size, after, before)

    def _is_last(self, sources: tuple[int, ...]) -> bool:
        """Whether all partial gradients of a tensor are there with these."""
        for source in sources:
            self.awaited[source] -= 1
        return all(self.awaited[source] <= 0 for source in sources)

    def _token_mark(self, shape: Shape) -> int:
        """Where the activations of all tokens are divided by sequence; `WHOLE` for anything else."""
        tokens, batch = self.graph.tokens, max(1, self.graph.batch)
        leading = 1
        for size in shape[:-1]:
            leading *= size
        if len(shape) < 2 or leading % batch or leading == batch or not tokens:
            return WHOLE
        return batch

    def leave_partial(self, index: int, position: int = 0, source: int | None = None) -> None:
        """The result at a position is a partial sum, perhaps part of the gradient of a tensor."""
        call = self.graph.calls[index]
        item = ITEM_BYTES[self.specs[call.outputs[position]].dtype]
        sources = () if source is None else (source,)
        self.partial[call.writes[min(position, len(call.writes) - 1)]] = Partial(item, sources)

    # The walk

    def run(self) -> Flow:
        """Walk all calls."""
        calls = self.graph.calls
        update = next((i for i, call in enumerate(calls) if call.phase is Phase.OPTIMIZER), len(calls))
        for index, call in enumerate(calls[:update]):
            self.visit(index, call)
        self._settle_gradients(update)
        self._divide_states()
        for index in range(update, len(calls)):
            self._update(index, calls[index])
        return self.flow

    def visit(self, index: int, call: Call) -> None:
        """Find out about one call."""
        reads, writes, name = call.reads, call.writes, call.name
        if name in _COPIES and reads and writes:
            self.root[writes[0]] = self.root.get(reads[0], reads[0])
            self._share_weight_name(reads[0], writes[0])
        elif name == FUSED:  # what leaves one kernel in two precisions is one tensor
            self.root.update(dict.fromkeys(writes, writes[0]))
        held, partial = self.held, self.partial
        if self._adds_up_gradient(index, call):
            self.last_write[writes[0]] = index
            return
        for buffer in reads:
            if buffer in held or buffer in partial:
                if not self._stays_partial(index, call):
                    self.rules.get(name, self.otherwise)(self, index, call)
                break
        else:
            if name in self.deciders:
                self.rules[name](self, index, call)
        if call.nature is not Nature.VIEW:
            for buffer in writes:
                self.last_write[buffer] = index

    def _adds_up_gradient(self, index: int, call: Call) -> bool:
        """A gradient added to a lasting one, which is divided, or a partial sum, just as it is."""
        if call.name != "aten.add_" or call.phase is not Phase.BACKWARD or len(call.reads) != 2:
            return False
        gradient, added = call.reads
        if self.buffers[gradient].role is not Role.GRADIENT:
            return False
        if added in self.partial:
            self.partial[gradient] = self.partial[added]
        if added in self.held:
            outer = self.mark(added, call.inputs[1])
            self.held[gradient] = outer
            self.flow.inputs[index], self.flow.outputs[index] = (outer, outer), (outer,)
        return True

    def _stays_partial(self, index: int, call: Call) -> bool:
        """Sums of partial sums, their copies and views are partial sums; anything else needs the sum."""
        partial = [buffer for buffer in call.reads if buffer in self.partial]
        if not partial:
            return False
        if call.nature is Nature.VIEW:
            return True
        if len(partial) == len(call.reads) and _is_linear(call):
            parts = [self.partial[buffer] for buffer in partial]
            sources = tuple(source for part in parts for source in part.sources)
            total = Partial(min(part.item_bytes for part in parts), sources)
            self.partial.update(dict.fromkeys(call.writes, total))
            return True
        for buffer in partial:
            self.settle(buffer, self.last_write.get(buffer, index - 1), index)
        return False

    def _divide_states(self) -> None:
        """State is divided as its parameter, where it has the divided axis; a row may not."""
        for state, parameter in owners_of_states(self.graph).items():
            if parameter in self.held:
                whole, kept = (self.shapes[self.buffers[index].spec] for index in (parameter, state))
                outer = same_axis(whole, kept, self.held[parameter])
                if outer != WHOLE:
                    self.held[state] = outer

    def _settle_gradients(self, update: int) -> None:
        """Gradients of parameters that are whole become whole."""
        whole = {self.weight_name[b] for b in self.weight_name if b not in self.held}
        summed = gathered = 0
        for index, buffer in enumerate(self.buffers):
            if buffer.role is Role.GRADIENT:
                if self.partial.pop(index, None) is not None:
                    summed += self.graph.buffer_bytes(index)
                if index in self.held and buffer.name in whole:
                    del self.held[index]
                    gathered += self.graph.buffer_bytes(index)
                elif index not in self.held and buffer.name not in whole:  # a device keeps what it needs
                    self.held[index] = self.held[self._same_name[buffer.name][0]]
        if summed and self.sums_gradients:
            self.move(GRADIENTS_OF_WHOLE, SUM, summed, update - 1, update)
        if gathered:
            self.move(GRADIENTS_OF_WHOLE, GATHER, gathered, update - 1, update)

    def _update(self, index: int, call: Call) -> None:
        """The optimizer works on each device's share of every parameter."""
        behind = updated(call)
        inputs = [
            self.mark(buffer, spec) if buffer in self.held else WHOLE
            for buffer, spec in zip(behind, call.inputs, strict=True)
        ]
        outputs = [
            inputs[position]
            if position < len(inputs) and spec == call.inputs[position] and spec != NO_TENSOR
            else self._updated_mark(call, inputs, spec)
            for position, spec in enumerate(call.outputs)
        ]
        self.flow.inputs[index], self.flow.outputs[index] = tuple(inputs), tuple(outputs)
        if len(call.writes) == len(outputs):
            for buffer, outer in zip(call.writes, outputs, strict=True):
                if outer != WHOLE:
                    self.held[buffer] = outer

    def _updated_mark(self, call: Call, inputs: list[int], output: int) -> int:
        """Where a result of another shape is divided, such as means of rows, or rows times columns."""
        if output == NO_TENSOR:
            return WHOLE
        to = self.specs[output]
        for spec, outer in zip(call.inputs, inputs, strict=True):
            if outer != WHOLE and self.specs[spec].dtype == to.dtype:
                found = same_axis(self.shapes[spec], to.shape, outer)
                if found != WHOLE:
                    return found
        return WHOLE


Rule = Callable[[Walk, int, Call], None]


def _is_linear(call: Call) -> bool:
    """Whether a call on partial sums leaves a partial sum."""
    return _LINEAR_WORK.issuperset(call.settings["fused"] if call.name == FUSED else (call.name,))


def _weights(graph: Graph) -> dict[int, str]:
    """Parameters and their copies in half precision, by name."""
    roles = (Role.PARAMETER, Role.CAST_WEIGHT)
    return {index: buffer.name for index, buffer in enumerate(graph.buffers) if buffer.role in roles}


_COPIES = frozenset({"aten._to_copy", "aten.clone", "aten.copy_", "aten.contiguous"})
_LINEAR_WORK = _COPIES | {"aten.add", "aten.add_", "aten.cat", "aten.slice_backward", "aten.sum", "aten.neg"}
