"""How the GPUs and network cards of one machine are joined, read from `nvidia-smi topo -m`.

The matrix names, for each pair, the worst part of the best path between them:

    NV#   # bonded NVLinks                          best
    PIX   one PCIe switch
    PXB   several PCIe switches
    PHB   the PCIe host bridge of a CPU
    NODE  several host bridges of one NUMA node
    SYS   the link between NUMA nodes (SOC in old drivers)   worst
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations, takewhile

from foretrain.errors import InvalidData, UnknownName

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU\d+")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|[a-z]\w*")  # network cards print as NIC0, or as mlx5_0, hfi1_0
_CELL = re.compile(r"[A-Z][A-Z0-9]*")
_NVLINK = re.compile(r"NV([1-9]\d*)")


class PathKind(IntEnum):
    """The worst part of a path between two devices; smaller is better."""

    SELF = 0
    NVLINK = 1
    PIX = 2
    PXB = 3
    PHB = 4
    NODE = 5
    SYS = 6


_PATH_BY_CODE = {"X": PathKind.SELF, "SOC": PathKind.SYS} | {
    path.name: path for path in PathKind if path not in (PathKind.SELF, PathKind.NVLINK)
}


@dataclass(frozen=True, slots=True)
class Connection:
    """How two devices are joined; `nvlinks` is 0 unless `kind` is NVLINK."""

    kind: PathKind
    nvlinks: int = 0

    @property
    def badness(self) -> tuple[int, int]:
        """Sorts connections from best to worst: by path, then the more NVLinks the better."""
        return (self.kind, -self.nvlinks)


@dataclass(frozen=True)
class Topology:
    """The devices of one machine and the connection of every pair, in the order they were printed."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    names: tuple[str, ...]
    matrix: tuple[tuple[Connection, ...], ...]

    def connection(self, a: str, b: str) -> Connection:
        """How two devices are joined; an unknown device raises `UnknownName`."""
        return self.matrix[self._index(a)][self._index(b)]

    def groups(self, within: PathKind = PathKind.NVLINK) -> tuple[tuple[str, ...], ...]:
        """GPUs that reach each other, perhaps through others, over paths no worse than `within`.

        NVLINK gives NVLink islands, PXB GPUs that share PCIe switches, PHB those that share a host bridge.
        """
        ungrouped = list(self.gpus)
        groups = []
        while ungrouped:
            group = [ungrouped.pop(0)]
            for member in group:  # grows while it is walked
                near = [gpu for gpu in ungrouped if self.connection(member, gpu).kind <= within]
                ungrouped = [gpu for gpu in ungrouped if gpu not in near]
                group += near
            groups.append(tuple(sorted(group, key=self._index)))
        return tuple(groups)

    def worst_path(self, gpus: Sequence[str] | None = None) -> Connection:
        """The worst connection among these GPUs (all, if None): what a ring through them waits for.

        A single GPU has only itself.
        """
        chosen = self.gpus if gpus is None else tuple(gpus)
        pairs = [self.connection(a, b) for a, b in combinations(chosen, 2)]
        return max(pairs, key=lambda pair: pair.badness, default=Connection(PathKind.SELF))

    @property
    def is_fully_nvlinked(self) -> bool:
        """Whether every two GPUs (and there are two) are joined by NVLink without a detour."""
        return self.worst_path().kind == PathKind.NVLINK

    def nearest_nic(self, gpu: str) -> str | None:
        """The network card with the best path to a GPU, the first of equals; None if there is no card."""
        return min(self.nics, key=lambda nic: self.connection(gpu, nic).badness, default=None)

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise UnknownName("device in this topology", name, self.names)
        return self.names.index(name)


def parse_topology(text: str, file: str = "nvidia-smi topo -m") -> Topology:
    """The topology in the output of `nvidia-smi topo -m`; a malformed matrix raises `InvalidData`.

    Takes old and new drivers: tabs or spaces, underlined headers, network cards, affinity columns, legends.
    `file` and the line number name the culprit in errors.
    """
    lines = _numbered_lines(text)
    names = _header(lines, file)
    rows = _rows(lines, names, file)
    _check_symmetric(names, rows, file)
    gpus = tuple(name for name in names if _GPU.fullmatch(name))
    return Topology(
        gpus=gpus,
        nics=tuple(name for name in names if name not in gpus),
        names=names,
        matrix=tuple(row for _, row in rows),
    )


def _numbered_lines(text: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        words = _ANSI.sub("", line).split()
        if words:
            yield number, words


def _header(lines: Iterable[tuple[int, list[str]]], file: str) -> tuple[str, ...]:
    """The devices of the first line that starts with a GPU's name; only those before the affinity columns."""
    for number, words in lines:
        if _GPU.fullmatch(words[0]):
            names = tuple(takewhile(_DEVICE.fullmatch, words))
            rest = words[len(names) :]
            if rest and rest[0] not in {"CPU", "NUMA", "GPU"}:
                raise InvalidData(file, f"{rest[0]!r} is no device name; is the header line missing?", number)
            if len(set(names)) != len(names):
                raise InvalidData(file, "the header names a device twice", number)
            return names
    raise InvalidData(file, "no matrix found: expected a header line GPU0 GPU1 ... and one row for each")


def _rows(
    lines: Iterable[tuple[int, list[str]]], names: tuple[str, ...], file: str
) -> list[tuple[int, tuple[Connection, ...]]]:
    """Line number and connections of each row; ends at the legend."""
    rows: list[tuple[int, tuple[Connection, ...]]] = []
    for number, (label, *words) in takewhile(lambda line: "Legend:" not in line[1], lines):
        if len(rows) == len(names):
            if _GPU.fullmatch(label):
                raise InvalidData(file, f"a row of {label}, which the header does not name", number)
            break  # whatever the terminal printed next
        if label != names[len(rows)]:
            raise InvalidData(file, f"expected the row of {names[len(rows)]}, found {label!r}", number)
        cells = list(takewhile(_CELL.fullmatch, words))
        if len(cells) != len(names):
            raise InvalidData(
                file, f"{label} has {len(cells)} connections, the header {len(names)} devices", number
            )
        rows.append((number, tuple(_connection(cell, file, number) for cell in cells)))
    if len(rows) < len(names):
        raise InvalidData(file, f"the header has {len(names)} devices, but only {len(rows)} rows follow")
    return rows


def _connection(code: str, file: str, row: int) -> Connection:
    if bonded := _NVLINK.fullmatch(code):
        return Connection(PathKind.NVLINK, int(bonded.group(1)))
    if code not in _PATH_BY_CODE:
        known = ", ".join([*_PATH_BY_CODE, "NV#"])
        raise InvalidData(file, f"unknown connection {code!r}; known are {known}", row)
    return Connection(_PATH_BY_CODE[code])


def _check_symmetric(
    names: tuple[str, ...], rows: list[tuple[int, tuple[Connection, ...]]], file: str
) -> None:
    for i, (number, row) in enumerate(rows):
        for j, connection in enumerate(row):
            if (connection.kind == PathKind.SELF) != (i == j):
                raise InvalidData(
                    file, f"X must stand on the diagonal and nowhere else: {names[i]}, {names[j]}", number
                )
            if connection != rows[j][1][i]:
                raise InvalidData(
                    file, f"{names[i]} to {names[j]} is not the same as {names[j]} to {names[i]}", number
                )
