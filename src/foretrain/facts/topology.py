"""How the GPUs and network cards of one machine are joined, as `nvidia-smi topo -m` prints it.

From a file (`read_topology`), or from the driver of the present machine (`ask_driver`). `links_among` is what
predictions take from it: the links between some of its GPUs, in the words of `links`.

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
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import combinations, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import Device
from foretrain.facts.links import topologies

_DRIVER_SECONDS = 10.0
_MATRIX = "nvidia-smi topo -m"
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

    @property
    def meaning(self) -> str:
        """What data pass on such a path."""
        return _MEANINGS[self]


_MEANINGS = {
    PathKind.SELF: "the device itself",
    PathKind.NVLINK: "NVLink",
    PathKind.PIX: "one PCIe switch",
    PathKind.PXB: "several PCIe switches",
    PathKind.PHB: "the PCIe host bridge of a CPU",
    PathKind.NODE: "several host bridges of one NUMA node",
    PathKind.SYS: "the link between NUMA nodes",
}
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
    file: str = field(default=_MATRIX, compare=False)

    def connection(self, a: str, b: str) -> Connection:
        """How two devices are joined; an unknown device raises `UnknownName`."""
        return self.matrix[self._index(a)][self._index(b)]

    def groups(
        self, within: PathKind = PathKind.NVLINK, gpus: Sequence[str] | None = None
    ) -> tuple[tuple[str, ...], ...]:
        """Of these GPUs (all, if None) those that reach each other over paths no worse than `within`.

        Perhaps through others of them. NVLINK gives NVLink islands, PXB GPUs that share PCIe switches, PHB
        those that share a host bridge.
        """
        ungrouped = list(self.gpus if gpus is None else gpus)
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


def read_topology(path: str | Path) -> Topology:
    """The topology in a file that holds what `nvidia-smi topo -m` printed."""
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise MissingData(
            f"there is no topology file {str(file)!r}; on the machine itself run `{_MATRIX} > {file.name}`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(str(file), f"cannot be read ({error}); it is the output of `{_MATRIX}`") from error
    return parse_topology(text, str(file))


def parse_topology(text: str, file: str = _MATRIX) -> Topology:
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
        file=file,
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
    raise InvalidData(
        file,
        "no matrix found: it must have a header line GPU0 GPU1 ... and a row for each; "
        "`nvidia-smi topo -m` prints one",
    )


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


def links_among(machine: Topology, device: Device, devices: int | None = None) -> str:
    """The links between the first `devices` GPUs (all, if None), in the words of `links`.

    - More NVLinks between every two GPUs than a GPU has for each of the others: a switch (`nvswitch2`).
    - NVLink to some GPUs, and over them to all: a mesh, written pair by pair (`nvlink2@0-1:1,0-2:2,...`).
    - Otherwise a ring through all of them passes PCI Express at its worst place: the topology of that
      (`pcie-switch`, `host-bridge`, `two-bridges`; `host-memory` for devices that are no peers).
    """
    count = len(machine.gpus) if devices is None else devices
    if not 1 < count <= len(machine.gpus):
        gpus = f"{len(machine.gpus)} GPU{'' if len(machine.gpus) == 1 else 's'}"
        raise InvalidRequest(f"{machine.file} has {gpus}; it cannot say how {count} of a node are joined")
    chosen = machine.gpus[:count]
    pairs = {(i, j): machine.connection(chosen[i], chosen[j]) for i, j in combinations(range(count), 2)}
    nvlinks = {pair: each.nvlinks for pair, each in pairs.items() if each.nvlinks}
    own = int(device.sheet.number("nvlink_links")) if device.sheet.has("nvlink_links") else 0
    if max(nvlinks.values(), default=0) > own:
        raise InvalidRequest(
            f"{machine.file} joins GPUs by {max(nvlinks.values())} NVLinks, and {device.id} has "
            f"{own or 'none'}; is it of another machine?"
        )
    if len(machine.groups(PathKind.NVLINK, chosen)) == 1:
        return _nvlinks(nvlinks, count, device)
    path = max(pairs.values(), key=lambda each: each.badness).kind
    shared = topologies()[path.name]
    return "host-memory" if shared.has_peers and not device.has_pcie_peer_access else shared.id


def _nvlinks(links: dict[tuple[int, int], int], count: int, device: Device) -> str:
    generation, own = int(device.sheet.number("nvlink_generation")), int(device.sheet.number("nvlink_links"))
    fewest, most = min(links.values()), max(links.values())
    is_complete = 2 * len(links) == count * (count - 1)
    if is_complete and fewest == most and most * (count - 1) > own:
        return f"nvswitch{generation - 1}" if most == own else f"nvlink{generation}:{most}"
    if len(links) == 1:  # all links of a pair are one path
        return f"nvlink{generation}:{most}"
    mesh = ",".join(f"{first}-{second}:{number}" for (first, second), number in links.items())
    return f"nvlink{generation}@{mesh}"


@dataclass(frozen=True)
class TopologyTier:
    """GPUs that reach each other over a kind of path, and over no better one."""

    path: str
    meaning: str
    groups: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TopologyAnswer(Answer):
    """What a topology says: its tiers from the best path to the worst, the network card nearest to each GPU.

    With a device, `links` is what predictions of all its GPUs use.
    """

    file: str
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    tiers: tuple[TopologyTier, ...]
    nearest_nics: dict[str, str]
    device: str | None
    links: str | None

    def to_dict(self) -> dict[str, Any]:
        """All of it."""
        content: dict[str, Any] = encode(self)
        return content

    def summary(self) -> tuple[tuple[str, str], ...]:
        """The tiers."""
        return tuple((tier.path, _groups_text(tier.groups)) for tier in self.tiers)


def explain_topology(machine: Topology, device: Device | None = None) -> TopologyAnswer:
    """The tiers of a machine; with its device, the links that predictions use."""
    tiers = []
    before = machine.groups(PathKind.SELF)
    for kind in PathKind:
        groups = machine.groups(kind)
        if groups != before:
            new = tuple(group for group in groups if group not in before)
            tiers.append(TopologyTier(_tier_name(machine, kind, new), kind.meaning, new))
        before = groups
    return TopologyAnswer(
        machine.file,
        machine.gpus,
        machine.nics,
        tuple(tiers),
        {gpu: nic for gpu in machine.gpus if (nic := machine.nearest_nic(gpu)) is not None},
        None if device is None else device.id,
        None if device is None or len(machine.gpus) == 1 else links_among(machine, device),
    )


def _tier_name(machine: Topology, kind: PathKind, groups: Iterable[tuple[str, ...]]) -> str:
    if kind is not PathKind.NVLINK:
        return kind.name
    counts = sorted({
        each.nvlinks
        for group in groups
        for a, b in combinations(group, 2)
        if (each := machine.connection(a, b)).nvlinks
    })  # fmt: skip
    return "/".join(f"NV{count}" for count in counts)


def _groups_text(groups: Iterable[tuple[str, ...]]) -> str:
    return "; ".join(" ".join(group) for group in groups)


class DriverReport(NamedTuple):
    """What the driver of this machine says: the product name of each GPU, and how they are joined."""

    names: tuple[str, ...]
    topology: Topology | None


def ask_driver() -> DriverReport | None:
    """What `nvidia-smi` of this machine says; None without it, or without a GPU."""
    names = _nvidia_smi("--query-gpu=name", "--format=csv,noheader").splitlines()
    gpus = tuple(name.strip() for name in names if name.strip())
    if not gpus:
        return None
    matrix = driver_matrix() if len(gpus) > 1 else ""
    return DriverReport(gpus, parse_topology(matrix) if matrix else None)


def driver_matrix() -> str:
    """What `nvidia-smi topo -m` of this machine prints; empty without it."""
    return _nvidia_smi("topo", "-m")


def _nvidia_smi(*words: str) -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        run = subprocess.run(
            [tool, *words], capture_output=True, text=True, check=False, timeout=_DRIVER_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout if run.returncode == 0 else ""
