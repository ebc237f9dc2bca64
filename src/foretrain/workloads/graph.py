"""The graph of one training step: what is computed, on what, and how long each piece of memory lives.

A `Graph` is recorded, not estimated. It holds

* `specs`: the distinct (shape, dtype) pairs that occur;
* `calls`: every operator call in execution order, with the specs and buffers it reads and writes;
* `buffers`: every piece of device memory, with the call it is born at and the call it dies after;
* `layers`: the leaf modules in order of execution.

Kinds, named dimensions, FLOP and bytes are *derived* from the calls (see `ops`), so that a graph at another
batch size is the same calls on other specs.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, wraps
from typing import Any, NamedTuple, TypeVar

from foretrain.facts.calibrations import constants_generation
from foretrain.workloads.options import ResolvedOptions

ITEM_BYTES: Mapping[str, int] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "complex64": 8, "complex128": 16,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "bool": 1,
}  # fmt: skip


class Phase(StrEnum):
    """The part of a training step a call belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"


class Role(StrEnum):
    """Why a piece of memory exists."""

    PARAMETER = "parameter"
    MODULE_BUFFER = "module buffer"
    INPUT = "input"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer state"
    CAST_WEIGHT = "cast weight"
    ACTIVATION = "activation"
    TEMPORARY = "temporary"


class Spec(NamedTuple):
    """Shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size of the contiguous tensor."""
        return self.elements * ITEM_BYTES[self.dtype]


NO_TENSOR = -1
"""Stands for an optional tensor argument that was not given."""


class Nature(StrEnum):
    """What PyTorch itself declares about an operator."""

    VIEW = "view"
    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    OTHER = "other"


class Call(NamedTuple):
    """One operator call as it was executed.

    `inputs`/`outputs` index `Graph.specs` (`NO_TENSOR` for an absent optional), `reads`/`writes` index
    `Graph.buffers`; `settings` are the non-tensor arguments that matter for cost; `forward` is the call a
    backward call differentiates.
    """

    name: str
    phase: Phase
    module: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    settings: Mapping[str, Any]
    nature: Nature = Nature.OTHER
    forward: int | None = None
    recomputed: bool = False


class Buffer(NamedTuple):
    """A piece of device memory: its size, the call it is born at (-1: before the step), and the last call
    it lives through (`len(calls)`: beyond the step).

    Parameters, their gradients, half-precision copies and optimizer state have the name of the parameter.
    """

    spec: int
    born: int
    dies: int
    role: Role
    name: str = ""


class Layer(NamedTuple):
    """One execution of a leaf module."""

    path: str
    type: str
    outputs: tuple[int, ...]
    parameters: int


_WEIGHTS = (Role.PARAMETER, Role.CAST_WEIGHT)


@dataclass(frozen=True, eq=False)
class Structure:
    """What follows from calls and buffers alone, whatever the sizes of tensors.

    Graphs of a family share it, so it is derived once for all batch sizes. `same_wiring`, if given, is that
    of a graph whose calls read and write the same buffers, with other specs. `derived` holds what
    `once_per_structure` functions returned.
    """

    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    same_wiring: Structure | None = None
    derived: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """For each call the first one like it in everything but its place: same operator on same specs."""
        first: dict[Any, int] = {}
        weights = {index for index, buffer in enumerate(self.buffers) if buffer.role in _WEIGHTS}
        reads_weight = [not weights.isdisjoint(call.reads) for call in self.calls]
        chosen = []
        for index, call in enumerate(self.calls):
            likeness = (
                call.name,
                call.phase,
                call.recomputed,
                call.inputs,
                call.outputs,
                tuple([self.buffers[buffer].spec for buffer in call.reads]),
                reads_weight[index],
                call.forward is not None and reads_weight[call.forward],
                str(call.settings) if call.settings else "",
            )
            chosen.append(first.setdefault(likeness, index))
        return tuple(chosen)

    @cached_property
    def saved(self) -> tuple[tuple[int, ...], ...]:
        """For each call the buffers it saves for its backward pass: what its own backward calls read of all
        that a forward pass made, or that was there before it."""
        if self.same_wiring is not None:
            return self.same_wiring.saved
        saved_by: list[dict[int, None]] = [{} for _ in self.calls]
        for call in self.calls:
            if call.forward is None or call.phase is not Phase.BACKWARD:
                continue
            for buffer in call.reads:
                born = self.buffers[buffer].born
                if born < 0 or self.calls[born].phase is Phase.FORWARD:
                    saved_by[call.forward][buffer] = None
        return tuple(tuple(sorted(buffers)) for buffers in saved_by)

    @cached_property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """For each call the calls whose results it reads: the edges of the graph."""
        if self.same_wiring is not None:
            return self.same_wiring.producers
        last_writer: dict[int, int] = {}
        edges: list[tuple[int, ...]] = []
        for index, call in enumerate(self.calls):
            writers = (last_writer.get(buffer) for buffer in call.reads)
            edges.append(tuple(sorted({writer for writer in writers if writer is not None})))
            last_writer.update(dict.fromkeys(call.writes, index))
        return tuple(edges)


class Repeats(NamedTuple):
    """Two graphs of a few equal blocks, one block apart, and how many more than the deeper a graph has."""

    low: Graph
    high: Graph
    extra: int


DEFAULT_OPTIONS = ResolvedOptions()
_NO_STRUCTURE = Structure((), ())


@dataclass(frozen=True)
class Graph:
    """One recorded training step of one device.

    `options` are how it is run, `trained` the names of the parameters that receive a gradient, `notes` what
    was assumed about the model, for the answer. A step function records the whole step (`is_whole_step`), in
    which phases may alternate. `offloaded_state_bytes_per_parameter` is
    optimizer state that the host holds, per trained parameter.

    `structure` follows from the calls and buffers: `replace` keeps it where they stay and makes a new one
    where they change. `derived` holds what `once_per_graph` functions returned; a changed graph starts empty.
    A graph that was derived from shallower ones (`depth.deepen`) has them in `repeats`, a changed one not.
    """

    specs: tuple[Spec, ...]
    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]
    layers: tuple[Layer, ...]
    batch: int
    samples: int
    tokens: int
    options: ResolvedOptions = DEFAULT_OPTIONS
    trained: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_whole_step: bool = False
    offloaded_state_bytes_per_parameter: float = 0.0
    structure: Structure = field(default=_NO_STRUCTURE, repr=False, compare=False)
    derived: dict[Callable[..., Any], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    repeats: Repeats | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.structure.calls is not self.calls or self.structure.buffers is not self.buffers:
            object.__setattr__(self, "structure", Structure(self.calls, self.buffers))

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, each shared one counted once."""
        return self._elements(Role.PARAMETER)

    @cached_property
    def trainable_parameters(self) -> int:
        """Number of parameters that receive a gradient."""
        return sum(
            self.specs[buffer.spec].elements
            for buffer in self.buffers
            if buffer.role is Role.PARAMETER and buffer.name in self.trained_names
        )

    @cached_property
    def trained_names(self) -> frozenset[str]:
        """Names of the parameters that receive a gradient."""
        return frozenset(self.trained)

    def _elements(self, role: Role) -> int:
        return sum(self.specs[buffer.spec].elements for buffer in self.buffers if buffer.role is role)

    def buffer_bytes(self, index: int) -> int:
        """Size of a buffer."""
        return self.specs[self.buffers[index].spec].bytes

    def with_specs(self, specs: tuple[Spec, ...], **changes: Any) -> Graph:
        """The same calls on other shapes."""
        return replace(self, specs=specs, **changes)

    def with_sizes_of(self, other: Graph) -> Graph:
        """The same calls on the specs and the batch of another graph of the family."""
        return self.with_specs(other.specs, batch=other.batch, samples=other.samples, tokens=other.tokens)

    @property
    def representatives(self) -> tuple[int, ...]:
        """For each call the first one like it (see `Structure`)."""
        return self.structure.representatives

    @property
    def saved(self) -> tuple[tuple[int, ...], ...]:
        """For each call the buffers it saves for its backward pass (see `Structure`)."""
        return self.structure.saved

    @property
    def producers(self) -> tuple[tuple[int, ...], ...]:
        """For each call the calls whose results it reads (see `Structure`)."""
        return self.structure.producers

    def reads_weight(self, call: Call) -> bool:
        """Whether a call reads a parameter, or its half-precision copy."""
        return any(self.buffers[buffer].role in _WEIGHTS for buffer in call.reads)


Derived = TypeVar("Derived")


def with_options(graph: Graph, **changes: Any) -> Graph:
    """The same calls, run with other options."""
    return replace(graph, options=replace(graph.options, **changes))


def once_per_graph(derive: Callable[[Graph], Derived]) -> Callable[[Graph], Derived]:
    """Let a function of a graph run once for each graph, which keeps the result as long as it lives.

    For what modules above derive again and again: one step is priced for many devices and layouts. What was
    derived with other calibrations is derived again.
    """

    @wraps(derive)
    def remembered(graph: Graph) -> Derived:
        generation = constants_generation()
        if graph.derived.get(derive, (None, None))[0] != generation:
            graph.derived[derive] = generation, derive(graph)
        result: Derived = graph.derived[derive][1]
        return result

    return remembered


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Graphs are large and form no cycles; scanning them repeatedly for garbage takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # what was made grows old unscanned
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def once_per_structure(derive: Callable[[Structure], Derived]) -> Callable[[Structure], Derived]:
    """The same for a function of a structure: it runs once for the graphs of a family."""

    @wraps(derive)
    def remembered(structure: Structure) -> Derived:
        if derive not in structure.derived:
            structure.derived[derive] = derive(structure)
        result: Derived = structure.derived[derive]
        return result

    return remembered


_SAVED = (Role.PARAMETER, Role.MODULE_BUFFER, Role.OPTIMIZER_STATE)


@once_per_graph
def state_bytes(graph: Graph) -> float:
    """Parameters, buffers and optimizer state of the whole model on the device."""
    saved = (index for index, buffer in enumerate(graph.buffers) if buffer.role in _SAVED)
    return float(sum(graph.buffer_bytes(index) for index in saved))


@once_per_graph
def checkpoint_bytes(graph: Graph) -> float:
    """Size of a checkpoint: all state, or without the parameters that are frozen, which never change."""
    frozen = sum(
        graph.buffer_bytes(index)
        for index, buffer in enumerate(graph.buffers)
        if buffer.role is Role.PARAMETER and buffer.name not in graph.trained_names
    )
    on_host = graph.offloaded_state_bytes_per_parameter * graph.trainable_parameters
    return state_bytes(graph) - frozen + on_host
