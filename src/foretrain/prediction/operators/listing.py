"""The operators of a graph as columns, each distinct work once: all that is known before a device is.

A graph is listed once and priced on many devices; graphs alike but for their batch are priced together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.operators.kernel_classes import kernel_class
from foretrain.prediction.operators.table import Flags, Floats, WorkTable, table
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.keeping import kept
from foretrain.workloads.ops import Kind, Op, Work
from foretrain.workloads.rules import operators

Integers = NDArray[np.int64]
PHASES, KINDS = tuple(Phase), tuple(Kind)
_NOWHERE = -1
"""The place of works that run nothing, behind those that do."""


@dataclass(frozen=True, eq=False)
class Listing:
    """Operators in the order they run; entry i of every column belongs to `ops[i]`."""

    ops: tuple[Op, ...]

    @cached_property
    def _placed(self) -> tuple[WorkTable, Integers]:
        place: dict[int, int] = {}
        works: list[Work] = []
        places = []
        for op in self.ops:
            work = op.work
            found = place.get(id(work))
            if found is None:
                runs = bool(work.kernels and (work.read_bytes or work.write_bytes))
                found = place[id(work)] = len(works) if runs else _NOWHERE
                if runs:
                    works.append(work)
            places.append(found)
        return table(works), np.array(places, np.int64)

    @property
    def works(self) -> WorkTable:
        """The distinct works that run something."""
        return self._placed[0]

    def per_op(self, of_works: Floats) -> Floats:
        """What is known of each distinct work, for each operator; 0 for views and empty tensors."""
        return np.asarray(np.append(of_works, 0.0)[self._placed[1]], float)

    @cached_property
    def calls(self) -> Integers:
        """The call of the graph each operator belongs to."""
        return np.array([op.call for op in self.ops], np.int64)

    @cached_property
    def kernels(self) -> Floats:
        """Launches of each operator; 0 for a view."""
        return np.array([op.work.kernels for op in self.ops], float)

    @cached_property
    def phases(self) -> Integers:
        """Places in `PHASES`."""
        place = {phase: index for index, phase in enumerate(PHASES)}
        return np.array([place[op.phase] for op in self.ops], np.int64)

    @cached_property
    def kinds(self) -> Integers:
        """Places in `KINDS`."""
        place = {kind: index for index, kind in enumerate(KINDS)}
        return np.array([place[op.work.kind] for op in self.ops], np.int64)

    @cached_property
    def classes(self) -> tuple[tuple[str, ...], Integers]:
        """The classes of kernels that occur, and each operator's place among them; -1 for a view."""
        names: dict[str, int] = {}
        of_work: dict[int, int] = {}
        for op in self.ops:
            if id(op.work) not in of_work:
                name = kernel_class(op.work) if op.work.kernels else None
                of_work[id(op.work)] = _NOWHERE if name is None else names.setdefault(name, len(names))
        return tuple(names), np.array([of_work[id(op.work)] for op in self.ops], np.int64)

    @cached_property
    def is_unknown(self) -> Flags:
        """Which operators no rule knows."""
        return np.asarray(self.kinds == KINDS.index(Kind.UNKNOWN), bool)


def listing_of(graph: Graph) -> Listing:
    """The operators of a graph, listed once."""
    return kept(graph, "listing", lambda it: Listing(operators(it)))


@lru_cache(maxsize=8)
def together(listings: tuple[Listing, ...]) -> Listing:
    """Several listings, one after the other."""
    if len(listings) == 1:
        return listings[0]
    return Listing(tuple(op for listing in listings for op in listing.ops))


def bounds(listings: Sequence[Listing]) -> list[int]:
    """Where each listing begins among all of them together, and where the last one ends."""
    return np.append(0, np.cumsum([len(listing.ops) for listing in listings])).tolist()
