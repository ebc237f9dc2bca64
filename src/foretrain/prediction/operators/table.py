"""Pieces of work as columns, so that a whole graph is priced in a few numpy operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.workloads.graph import ITEM_BYTES
from foretrain.workloads.ops import MATRIX_KINDS, Kind, Work

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
