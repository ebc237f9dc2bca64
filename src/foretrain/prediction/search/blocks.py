"""A model as a row of blocks, most of them alike: what a search over layouts looks at.

Calls belong to the block of their module (`layers.3`), or to what comes before the first and after the last
block. Blocks with the same calls on the same specs are of one kind, so one of each tells the cost of all.
`condensed` keeps only those: dividing and pricing it costs a fraction of the whole graph.
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
"""What comes before the first block, and after the last."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a model in order. `kind_of` numbers their kinds; `condensed` has one of each kind."""

    names: tuple[str, ...]
    kind_of: NDArray[np.int64]
    condensed: Graph

    def __len__(self) -> int:
        return len(self.names)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many blocks there are of each kind."""
        return np.bincount(self.kind_of)

    def kinds_of_calls(self, graph: Graph) -> NDArray[np.int64]:
        """The kind of block each call of a condensed graph belongs to, divided or not; -1: the optimizer."""
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
    """The block of each call; None for the optimizer's, which belong to all."""
    unit = cache(lambda module: unit_of(f"{module}."))
    forward: list[str | None] = []
    begun = False
    for call in graph.calls:
        if call.phase is not Phase.FORWARD:
            break
        own = unit(call.module)
        begun = begun or bool(own)
        forward.append(own or (AFTER if begun else BEFORE))
    found = list(forward)
    previous = forward[-1] if forward else AFTER
    for call in graph.calls[len(forward) :]:
        if call.phase is Phase.OPTIMIZER:
            found.append(None)
            continue
        own = unit(call.module)
        if not own and call.forward is not None and call.forward < len(forward):
            own = forward[call.forward] or ""
        previous = own or previous
        found.append(own if own else previous)
    return _in_the_middle(found, len(forward))


def _in_the_middle(units: list[str | None], forward: int) -> list[str | None]:
    """What stands between blocks in the forward pass goes with the block before it."""
    last_block = max((i for i in range(forward) if units[i] not in (BEFORE, AFTER)), default=-1)
    current: str | None = BEFORE
    for index in range(last_block + 1):
        if units[index] == AFTER:
            units[index] = current
        current = units[index]
    return units


def _kinds(graph: Graph, unit_of_call: list[str | None], names: list[str]) -> dict[str, int]:
    """Blocks by kind: those that make the same calls on the same specs are alike."""
    made: dict[str, list[Hashable]] = {name: [] for name in names}
    for call, unit in zip(graph.calls, unit_of_call, strict=True):
        if unit is not None:
            made[unit].append((call.name, call.phase, call.inputs, call.outputs))
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(tuple(made[name]), len(numbers)) for name in names}
