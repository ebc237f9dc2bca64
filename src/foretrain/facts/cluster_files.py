"""A cluster as a file: which nodes there are, and the network between them. Nodes may differ.

    nodes:                              a list; each entry stands for `count` equal nodes (default 1) of
      - device: rtx2080ti                 a device, with `devices` to a node (default 1),
        devices: 4
        count: 2
        links: pcie3-x16                  joined by LINK[:COUNT] (else: what is known of such nodes),
        topology: node.txt                or as `nvidia-smi topo -m` printed into a file beside this one
      - node: dgx-h100                    or a known machine (`data/nodes`),
      - instance: aws:p4d.24xlarge        or one that a provider rents out
        count: 2
    network: infiniband-ndr:8           LINK[:CARDS] between all nodes (else: what is known of each)

Here the file is only read and checked; `hardware` and `clusters` know what it describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrain.decoding import TEXT, Kind, decode, option, parse_mapping, read_mapping, records, whole_number
from foretrain.errors import InvalidData
from foretrain.facts.links import link

SUFFIXES = (".yaml", ".yml")
_NAMING = ("device", "node", "instance")
_EXAMPLE = "nodes: [{device: rtx2080ti, devices: 4, count: 2}, {node: dgx-h100}]"


@dataclass(frozen=True)
class NodeEntry:
    """Equal nodes, `count` of them; `named_by` is the key that names them, `name` its value."""

    named_by: str
    name: str
    devices: int
    count: int
    links: str | None
    topology: Path | None


@dataclass(frozen=True)
class ClusterFile:
    """The contents of a cluster file."""

    file: str
    entries: tuple[NodeEntry, ...]
    network: str | None

    def place(self, number: int) -> str:
        """How an entry is called in errors, counted from 0."""
        return f"nodes, entry {number + 1}"


def _read_link(value: Any) -> str:
    name = TEXT.read(value)
    link(name.partition(":")[0])  # raises UnknownName
    return str(name)


_LINK = Kind("LINK[:COUNT]", "LINK or LINK:COUNT", _read_link)


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One entry of `nodes`, as it is written."""

    device: str | None = option(TEXT, "A device.")
    node: str | None = option(TEXT, "A known machine.")
    instance: str | None = option(TEXT, "A machine that a provider rents out.")
    devices: int | None = option(whole_number(1), "Devices of each node.")
    count: int = option(whole_number(1), "Nodes.", default=1)
    links: str | None = option(_LINK, "Links between the devices of a node.")
    topology: str | None = option(TEXT, "File with the output of `nvidia-smi topo -m` on such a node.")


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """A cluster file, as it is written."""

    nodes: tuple[_Entry, ...] = option(
        records(_Entry, "{device: t4, devices: 4, count: 2}"), f"The nodes, e.g. `{_EXAMPLE}`.", required=True
    )
    network: str | None = option(_LINK, "The network between all nodes.")


def is_cluster_file(text: str) -> bool:
    """Whether a name of hardware is that of a file."""
    return text.endswith(SUFFIXES)


def read_cluster_file(path: str | Path) -> ClusterFile:
    """The contents of a cluster file, checked; a malformed one raises `InvalidData` that names the key."""
    file = Path(path).expanduser()
    return _checked(read_mapping(file, "cluster file", _EXAMPLE), file)


def parse_cluster(text: str, file: str) -> ClusterFile:
    """The same from the text of the file."""
    return _checked(parse_mapping(text, Path(file), _EXAMPLE), Path(file))


def _checked(content: dict[str, Any], file: Path) -> ClusterFile:
    if "node_types" in content:
        raise InvalidData(
            str(file),
            "describes the fleet of a scheduler (`node_types`), which `schedule`, `simulate` and `run` take; "
            f"hardware to train on is a file such as {_EXAMPLE}",
        )
    decoded = decode(_Contents, content, file)
    entries = tuple(
        _entry(entry, str(file), f"nodes, entry {place}: ") for place, entry in enumerate(decoded.nodes, 1)
    )
    return ClusterFile(str(file), entries, decoded.network)


def _entry(entry: _Entry, file: str, where: str) -> NodeEntry:
    naming = [key for key in _NAMING if getattr(entry, key) is not None]
    if len(naming) != 1:
        given = f"both {' and '.join(naming)}" if naming else f"none of {', '.join(_NAMING)}"
        raise InvalidData(file, f"{where}gives {given}; name one")
    (named_by,) = naming
    if named_by != "device" and entry.devices is not None:
        raise InvalidData(
            file, f"{where}devices is known of a {named_by}; leave it out, or name the device instead"
        )
    if entry.links is not None and entry.topology is not None:
        raise InvalidData(file, f"{where}gives both links and topology; give one")
    topology = None if entry.topology is None else Path(file).parent / Path(entry.topology).expanduser()
    name = getattr(entry, named_by)
    return NodeEntry(named_by, name, entry.devices or 1, entry.count, entry.links, topology)
