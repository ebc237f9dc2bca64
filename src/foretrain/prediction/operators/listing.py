"""Operators as columns.

Classes of kernels that run alike: what one library routine does, in one direction and one layout.

Pieces of work as columns, so that a whole graph is priced in a few numpy operations.

The operators of a graph as columns, each distinct work once: all that is known before a device is.

A graph is listed once and priced on many devices; graphs alike but for their batch are priced together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.workloads.graph import ITEM_BYTES, Graph, Phase, cached_on_graph
from foretrain.workloads.ops import MATRIX_KINDS, Direction, Kind, Op, Work
from foretrain.workloads.rules import operators

_AXES = ("depth", "height", "width")
_FEW_CHANNELS = 8
"""Tensor cores take channels by the eight: with fewer they mostly idle, as in a network's first layer."""
_DEPTHWISE_CHANNELS = 2
_NARROW_GROUP = 16
"""Channels of a group up to which grouped kernels keep pace with dense ones in the channels-last layout."""
_WIDE_KERNEL = 49
"""Kernel elements from which depthwise convolutions are bound by arithmetic."""
_DIRECTIONS = {
    Direction.FORWARD: "forward",
    Direction.INPUT_GRADIENT: "input gradient",
    Direction.WEIGHT_GRADIENT: "weight gradient",
    Direction.BACKWARD: "backward",
    Direction.UPDATE: "update",
}


def kernel_class(work: Work) -> str:
    """The name of the class a work belongs to, such as `dense convolution, forward, channels-last`."""
    direction = _DIRECTIONS[work.direction]
    if work.kind is Kind.CONVOLUTION:
        return f"{_shape(work)} convolution, {direction}, {_layout(work)}"
    if work.kind is Kind.NORMALISATION and work.dims.get("over_batch"):
        return f"batch normalisation, {direction}, {_layout(work)}"
    return f"{work.kind}, {direction}"


def _layout(work: Work) -> str:
    return "channels-last" if work.dims.get("channels_last") else "channels-first"


def _shape(work: Work) -> str:
    dims = work.dims
    groups = dims["groups"]
    if groups > 1:
        width = max(dims["in_channels"], dims["out_channels"]) / groups
        if width > _DEPTHWISE_CHANNELS:
            return "narrowly grouped" if width <= _NARROW_GROUP else "widely grouped"
        elements = math.prod(dims.get(f"kernel_{axis}", 1) for axis in _AXES)
        return "wide depthwise" if elements >= _WIDE_KERNEL else "depthwise"
    if dims["in_channels"] < _FEW_CHANNELS:
        return "first"
    kernel = [dims.get(f"kernel_{axis}", 1) for axis in _AXES]
    strides = [dims.get(f"stride_{axis}", 1) for axis in _AXES]
    if max(kernel) == 1:
        return "pointwise"
    return "patch" if all(stride >= side for stride, side in zip(strides, kernel, strict=True)) else "dense"


Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ITEM_BYTES = {**ITEM_BYTES, "tf32": 4}


@dataclass(frozen=True, eq=False)
class WorkTable:
    """Works in columns; row i of every column belongs to `works[i]`."""

    works: tuple[Work, ...]

    def __len__(self) -> int:
        return len(self.works)

    @cached_property
    def flop(self) -> Floats:
        """FLOP of each work."""
        return np.array([work.flop for work in self.works], float)

    @cached_property
    def read_bytes(self) -> Floats:
        """Bytes each work must read."""
        return np.array([work.read_bytes for work in self.works], float)

    @cached_property
    def write_bytes(self) -> Floats:
        """Bytes each work must write."""
        return np.array([work.write_bytes for work in self.works], float)

    @cached_property
    def bytes(self) -> Floats:
        """Compulsory traffic of each work."""
        return self.read_bytes + self.write_bytes

    @cached_property
    def kernels(self) -> Floats:
        """Launches of each work."""
        return np.array([work.kernels for work in self.works], float)

    @cached_property
    def item_bytes(self) -> Floats:
        """Bytes of one element of the type computed in."""
        return np.array([_ITEM_BYTES[work.dtype] for work in self.works], float)

    @cached_property
    def is_matrix(self) -> Flags:
        """Which works are matrix products, convolutions, attention or recurrent."""
        return np.array([work.kind in MATRIX_KINDS for work in self.works], bool)

    @cached_property
    def arithmetic(self) -> tuple[tuple[tuple[str, bool], ...], NDArray[np.int64]]:
        """The types computed in, each as a product or not, and the place of every work among them."""
        places: dict[tuple[str, bool], int] = {}
        both = zip((work.dtype for work in self.works), self.is_matrix.tolist(), strict=True)
        of_work = [places.setdefault(each, len(places)) for each in both]
        return tuple(places), np.array(of_work, np.int64)

    @cached_property
    def _known(self) -> dict[Any, Any]:
        """Columns asked for by name, since models ask for the same ones several times."""
        return {}

    def dim(self, name: str, default: float = 1.0) -> Floats:
        """A named dimension of each work; `default` where a work has no such dimension. Not to be changed."""
        found: Floats | None = self._known.get((name, default))
        if found is None:
            found = np.array([work.dims.get(name, default) for work in self.works], float)
            self._known[name, default] = found
        return found

    def where(self, kinds: frozenset[Kind]) -> Flags:
        """Which works are of some kinds. Not to be changed."""
        found: Flags | None = self._known.get(kinds)
        if found is None:
            found = np.array([work.kind in kinds for work in self.works], bool)
            self._known[kinds] = found
        return found

    @cached_property
    def kinds(self) -> frozenset[Kind]:
        """The kinds that occur."""
        return frozenset(work.kind for work in self.works)

    def of(self, kinds: frozenset[Kind]) -> WorkTable:
        """The table of only the works of some kinds, made once."""
        found: WorkTable | None = self._known.get(("of", kinds))
        if found is None:
            found = self if self.where(kinds).all() else self.rows(self.where(kinds))
            self._known["of", kinds] = found
        return found

    def rows(self, chosen: Flags) -> WorkTable:
        """The table of only the chosen rows."""
        return WorkTable(tuple(work for work, keep in zip(self.works, chosen, strict=True) if keep))


def table(works: Sequence[Work]) -> WorkTable:
    """A table of works."""
    return WorkTable(tuple(works))


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
    return cached_on_graph(graph, "listing", lambda it: Listing(operators(it)))


@lru_cache(maxsize=8)
def together(listings: tuple[Listing, ...]) -> Listing:
    """Several listings, one after the other."""
    if len(listings) == 1:
        return listings[0]
    return Listing(tuple(op for listing in listings for op in listing.ops))


def bounds(listings: Sequence[Listing]) -> list[int]:
    """Where each listing begins among all of them together, and where the last one ends."""
    return np.append(0, np.cumsum([len(listing.ops) for listing in listings])).tolist()
