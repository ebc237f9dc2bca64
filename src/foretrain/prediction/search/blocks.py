"""A model as a sequence of blocks, most of which are identical.

A call belongs to the block of its module (`layers.3`), or to the part before the first or after the last
block. Blocks with the same calls on the same tensor specs are of one kind and have the same costs. The
condensed graph holds one block of each kind: dividing and pricing it takes a fraction of the time that the
whole graph takes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.strategies.pipeline.stages import stage_programs
from foretrain.prediction.strategies.program import Program, unit_of
from foretrain.workloads.graph import Graph, Phase

BEFORE, AFTER = "(start)", "(end)"
"""Names of the parts before the first and after the last block."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a model in order, the index of the kind of each, and a graph with one block per kind."""

    names: tuple[str, ...]
    kind_of: NDArray[np.int64]
    condensed: Graph

    def __len__(self) -> int:
        return len(self.names)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of blocks of each kind."""
        return np.bincount(self.kind_of)

    def kinds_of_calls(self, graph: Graph) -> NDArray[np.int64]:
        """The kind of the block of each call of a condensed graph; -1 for calls of the optimizer."""
        kinds = dict(zip(self.names, self.kind_of.tolist(), strict=True))
        return np.array([-1 if unit is None else kinds[unit] for unit in _units(graph)], np.int64)


def blocks_of(graph: Graph) -> Blocks:
    """The blocks of a graph."""
    unit_of_call = _units(graph)
    names = list(dict.fromkeys(unit for unit in unit_of_call if unit is not None))
    kinds = _kinds(graph, unit_of_call, names)
    kind_of = np.array([kinds[name] for name in names], np.int64)
    first = {kind: names[int(np.argmax(kind_of == kind))] for kind in sorted(set(kinds.values()))}
    kept = set(first.values())
    stage_of_call = np.array([0 if unit in kept else 1 for unit in unit_of_call], np.int64)
    (part,) = stage_programs(Program(graph), stage_of_call, 1)
    return Blocks(tuple(names), kind_of, part.program.graph)


def _units(graph: Graph) -> list[str | None]:
    """The block of each call; None for calls of the optimizer, which belong to all."""
    unit = cache(lambda module: unit_of(f"{module}."))
    forward: list[str | None] = []
    is_after_first = False
    for call in graph.calls:
        if call.phase is not Phase.FORWARD:
            break
        own = unit(call.module)
        is_after_first = is_after_first or bool(own)
        forward.append(own or (AFTER if is_after_first else BEFORE))
    units = list(forward)
    previous = forward[-1] if forward else AFTER
    for call in graph.calls[len(forward) :]:
        if call.phase is Phase.OPTIMIZER:
            units.append(None)
            continue
        own = unit(call.module)
        if not own and call.forward is not None and call.forward < len(forward):
            own = forward[call.forward] or ""
        previous = own or previous
        units.append(own if own else previous)
    return _with_calls_between(units, len(forward))


def _with_calls_between(units: list[str | None], forward: int) -> list[str | None]:
    """Assign calls between two blocks of the forward pass to the first of them."""
    last_block = max((i for i in range(forward) if units[i] not in (BEFORE, AFTER)), default=-1)
    current: str | None = BEFORE
    for index in range(last_block + 1):
        if units[index] == AFTER:
            units[index] = current
        current = units[index]
    return units


def _kinds(graph: Graph, unit_of_call: list[str | None], names: list[str]) -> dict[str, int]:
    """The kind of each block: blocks with the same calls on the same specs are of one kind."""
    made: dict[str, list[Hashable]] = {name: [] for name in names}
    for call, unit in zip(graph.calls, unit_of_call, strict=True):
        if unit is not None:
            made[unit].append((call.name, call.phase, call.inputs, call.outputs))
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(tuple(made[name]), len(numbers)) for name in names}
