"""Propagation of divisions through a step: which tensors are divided between devices, and what is exchanged.

Every buffer is whole, divided (see `shapes`) or a partial sum. A walk over the calls propagates this from
operands to results: views and elementwise operators keep a division, a reduction over the divided axis
produces a partial sum, and operators that need whole operands gather them first. A strategy defines `Rule`s
for the calls it treats specially (products, attention, embeddings). Nothing depends on the number of devices,
so one walk serves all degrees: `divide` makes the graph of one device from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from foretrain.prediction.strategies.division.shapes import (
    WHOLE,
    Shape,
    divide_spec,
    find_updated,
    outer_at,
    owners_of_states,
    relocate,
    same_axis,
    size_at,
)
from foretrain.workloads.fused_kernels import FUSED
from foretrain.workloads.graph import (
    ITEM_BYTES,
    NO_TENSOR,
    Call,
    Graph,
    Layer,
    Nature,
    Phase,
    Role,
    Spec,
    Structure,
)

Share = Callable[[Spec, int, int], Spec]
"""The share of a spec, from its mark and the number of devices."""
Marks = tuple[int, ...]


class Movement(NamedTuple):
    """Data exchanged between call `after` and call `before`; later calls in `readers` need it, too."""

    name: str
    kind: str
    bytes: float
    after: int
    before: int
    readers: tuple[int, ...] = ()


SUM = "sum"
"""Partial sums are added: an all-reduce."""
SUM_TO_SHARES = "sum to shares"
"""Partial sums are added, and each device keeps a share: a reduce-scatter."""
GRADIENTS_OF_WHOLE = "gradients of whole parameters"
RING = "ring"
"""Shares circulate through all devices."""
GATHER = "gather"
"""Shares are combined to the whole: an all-gather."""


class Partial(NamedTuple):
    """A partial sum: bytes per element it was computed in (the widest type it is sent in), and the tensors
    it is a partial gradient of."""

    item_bytes: int
    sources: tuple[int, ...] = ()


class Constraint(NamedTuple):
    """A size that must be divisible by the number of devices."""

    size: int
    what: str
    module: str


@dataclass
class Flow:
    """The result of a walk: marks of the operands and results of each call (None: all whole) and of each
    buffer, the data that moves, and the sizes that must be divisible."""

    inputs: list[Marks | None]
    outputs: list[Marks | None]
    buffers: dict[int, int]
    movements: list[Movement] = field(default_factory=list)
    constraints: dict[tuple[int, str], Constraint] = field(default_factory=dict)
    padded: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


class Walk:
    """The state of a walk over the calls, and the operations that rules use."""

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
        """Whether a sum of partial results stays divided by tokens (sequence parallelism)."""
        self.sums_gradients = sums_gradients
        """Whether gradients of whole parameters are summed here, or with those of the replicas."""
        self.held: dict[int, int] = {}
        self.by_tokens: set[int] = set()
        self.partial: dict[int, Partial] = {}
        self.awaited: dict[int, int] = {}
        """Number of partial gradients a tensor will get; they are summed over the devices together."""
        self.last_write: dict[int, int] = {}
        self.root: dict[int, int] = {}
        self.gathered: dict[tuple[int, Phase, bool], int] = {}
        """The movement that gathers a tensor in a phase."""
        self.weight_name = _weights(graph)
        self.views: dict[tuple[int, int], int] = {}
        self._same_name: dict[str, list[int]] = {}
        for buffer, name in self.weight_name.items():
            self._same_name.setdefault(name, []).append(buffer)
        calls = len(graph.calls)
        self.flow = Flow([None] * calls, [None] * calls, self.held)

    # Operands

    def operands(self, call: Call) -> list[int]:
        """The buffer of each tensor argument (-1 if there is none)."""
        inputs, reads = call.inputs, call.reads
        if len(inputs) == len(reads) and NO_TENSOR not in inputs:
            return list(reads)
        present = len(inputs) - inputs.count(NO_TENSOR)
        buffers, at = [], 0
        for spec in inputs:
            if spec == NO_TENSOR:
                buffers.append(-1)
                continue
            buffers.append(reads[min(at, len(reads) - 1)] if reads else -1)
            present -= 1
            left = len(reads) - at - 1
            if left > 0 and (present <= left or self._fits(reads[at + 1], call.inputs[len(buffers) :])):
                at += 1
        return buffers

    def _fits(self, buffer: int, following: tuple[int, ...]) -> bool:
        """Whether the next argument could be this buffer."""
        spec = next((spec for spec in following if spec != NO_TENSOR), NO_TENSOR)
        return (
            spec != NO_TENSOR and self.specs[spec].elements == self.specs[self.buffers[buffer].spec].elements
        )

    def mark(self, buffer: int, spec: int) -> int:
        """The mark of the view `spec` of a buffer."""
        outer = self.held.get(buffer, WHOLE)
        if outer == WHOLE:
            return WHOLE
        seen = self.views.get((buffer, spec))
        if seen is not None:
            return seen
        return relocate(self.shapes[self.buffers[buffer].spec], self.shapes[spec], outer)

    def is_stored(self, buffer: int, shape: Shape) -> bool:
        """Whether an activation of this shape is stored in full, not a smaller tensor expanded to it."""
        own = self.shapes[self.buffers[buffer].spec]
        return buffer not in self.weight_name and math.prod(own) >= math.prod(shape)

    # Results

    def emit(
        self, index: int, inputs: Iterable[int], outputs: Iterable[int], by_tokens: bool = False
    ) -> None:
        """Record the marks of a call, and those of the buffers it writes."""
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
        """Divide a parameter, its copies in half precision, and the calls that write them."""
        for buffer in self._same_name.get(name, ()):
            shape = self.shapes[self.buffers[buffer].spec]
            axis = shape_axis(shape)
            outer = outer_at(shape, axis)
            self.held[buffer] = outer
            born = self.buffers[buffer].born
            if born >= 0:
                self.flow.inputs[born], self.flow.outputs[born] = (outer,), (outer,)

    def divide_vector(self, buffer: int) -> None:
        """Divide a bias or another vector parameter along the divided axis."""
        name = self.weight_name.get(buffer)
        if name is not None and buffer not in self.held:
            self.divide_weight(name, lambda shape: len(shape) - 1)

    def _share_weight_name(self, source: int, copy: int) -> None:
        """Give a copy of a weight the name of the weight."""
        if source in self.weight_name and copy not in self.weight_name:
            self.weight_name[copy] = self.weight_name[source]

    def require(self, size: int, what: str, module: str) -> None:
        """Record a size that the number of devices must divide, with the first module that requires it."""
        self.flow.constraints.setdefault((size, what), Constraint(size, what, module))

    def remark(self, note: str) -> None:
        """Record a note for the user, once."""
        if note not in self.flow.notes:
            self.flow.notes.append(note)

    def move(self, name: str, kind: str, size: float, after: int, before: int) -> None:
        """Record data that moves."""
        self.flow.movements.append(Movement(name, kind, size, after, before))

    def gather(self, buffer: int, index: int) -> None:
        """Make a divided buffer whole from call `index` on. Inputs are available in full on every device."""
        if self.buffers[buffer].role is Role.INPUT:
            return
        if self.held.pop(buffer, None) is not None:
            self.by_tokens.discard(buffer)
            size = self.graph.buffer_bytes(buffer)
            self.move("gather", GATHER, size, self.last_write.get(buffer, -1), index)

    def gather_for(self, buffer: int, index: int, share: float = 1.0) -> None:
        """Make a buffer whole for this call only, of which a `share` of the bytes is sent.

        Calls on copies of the same tensor share a gather.
        """
        call = self.graph.calls[index]
        key = (self.root.get(buffer, buffer), call.phase, call.recomputed)
        if key in self.gathered:
            movement = self.flow.movements[self.gathered[key]]
            readers = (*movement.readers, index)
            self.flow.movements[self.gathered[key]] = movement._replace(readers=readers)
            return
        self.gathered[key] = len(self.flow.movements)
        written = self.last_write.get(buffer, -1)
        is_kept = written < 0 or self.graph.calls[written].phase is not call.phase
        size = self.graph.buffer_bytes(buffer) * share
        self.move("gather tokens", GATHER, size, index - 1 if is_kept else written, index)

    def reduce_partial(self, buffer: int, after: int, before: int, *, scatters: bool = True) -> None:
        """Sum a partial result over the devices; under sequence parallelism each device keeps a share."""
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
        """Whether these are the last partial gradients of their tensors."""
        for source in sources:
            self.awaited[source] -= 1
        return all(self.awaited[source] <= 0 for source in sources)

    def _token_mark(self, shape: Shape) -> int:
        """The mark of activations divided by sequence; `WHOLE` for tensors without tokens."""
        tokens, batch = self.graph.tokens, max(1, self.graph.batch)
        leading = 1
        for size in shape[:-1]:
            leading *= size
        if len(shape) < 2 or leading % batch or leading == batch or not tokens:
            return WHOLE
        return batch

    def leave_partial(self, index: int, position: int = 0, source: int | None = None) -> None:
        """Mark a result as a partial sum; `source` is the tensor it is a gradient of, if any."""
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
        self._reduce_gradients(update)
        self._divide_states()
        for index in range(update, len(calls)):
            self._update(index, calls[index])
        return self.flow

    def visit(self, index: int, call: Call) -> None:
        """Propagate marks through one call."""
        reads, writes, name = call.reads, call.writes, call.name
        if name in _COPIES and reads and writes:
            self.root[writes[0]] = self.root.get(reads[0], reads[0])
            self._share_weight_name(reads[0], writes[0])
        elif name == FUSED:  # outputs of one kernel in two precisions are one tensor
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
        """Whether a call accumulates a gradient; the accumulated one gets the same mark or partial sum."""
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
        """Whether results are partial sums (of sums, copies and views); otherwise operands are reduced."""
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
            self.reduce_partial(buffer, self.last_write.get(buffer, index - 1), index)
        return False

    def _divide_states(self) -> None:
        """Divide optimizer state as its parameter is, if it has the divided axis."""
        for state, parameter in owners_of_states(self.graph).items():
            if parameter in self.held:
                shape, state_shape = (self.shapes[self.buffers[index].spec] for index in (parameter, state))
                outer = same_axis(shape, state_shape, self.held[parameter])
                if outer != WHOLE:
                    self.held[state] = outer

    def _reduce_gradients(self, update: int) -> None:
        """Sum or gather the gradients of whole parameters."""
        whole = {self.weight_name[b] for b in self.weight_name if b not in self.held}
        summed = gathered = 0
        for index, buffer in enumerate(self.buffers):
            if buffer.role is Role.GRADIENT:
                if self.partial.pop(index, None) is not None:
                    summed += self.graph.buffer_bytes(index)
                if index in self.held and buffer.name in whole:
                    del self.held[index]
                    gathered += self.graph.buffer_bytes(index)
                elif index not in self.held and buffer.name not in whole:  # a device keeps only its share
                    self.held[index] = self.held[self._same_name[buffer.name][0]]
        if summed and self.sums_gradients:
            self.move(GRADIENTS_OF_WHOLE, SUM, summed, update - 1, update)
        if gathered:
            self.move(GRADIENTS_OF_WHOLE, GATHER, gathered, update - 1, update)

    def _update(self, index: int, call: Call) -> None:
        """Propagate marks through a call of the optimizer, which works on the device's share."""
        buffers = find_updated(call)
        inputs = [
            self.mark(buffer, spec) if buffer in self.held else WHOLE
            for buffer, spec in zip(buffers, call.inputs, strict=True)
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
        """The mark of a result of another shape, such as means of rows, or products of rows and columns."""
        if output == NO_TENSOR:
            return WHOLE
        to = self.specs[output]
        for spec, outer in zip(call.inputs, inputs, strict=True):
            if outer != WHOLE and self.specs[spec].dtype == to.dtype:
                mark = same_axis(self.shapes[spec], to.shape, outer)
                if mark != WHOLE:
                    return mark
        return WHOLE


Rule = Callable[[Walk, int, Call], None]


def _is_linear(call: Call) -> bool:
    """Whether a call on partial sums produces a partial sum."""
    return _LINEAR_WORK.issuperset(call.settings["fused"] if call.name == FUSED else (call.name,))


def _weights(graph: Graph) -> dict[int, str]:
    """Names of parameters and their copies in half precision, by buffer."""
    roles = (Role.PARAMETER, Role.CAST_WEIGHT)
    return {index: buffer.name for index, buffer in enumerate(graph.buffers) if buffer.role in roles}


_COPIES = frozenset({"aten._to_copy", "aten.clone", "aten.copy_", "aten.contiguous"})
_LINEAR_WORK = _COPIES | {"aten.add", "aten.add_", "aten.cat", "aten.slice_backward", "aten.sum", "aten.neg"}


def divide(graph: Graph, flow: Flow, degree: int, share_of: Share = divide_spec) -> Graph:
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
            elsewhere = spec.elements - divide_spec(spec, outer, degree).elements
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
