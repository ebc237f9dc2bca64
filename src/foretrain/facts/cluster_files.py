"""A cluster as a file: which nodes there are, and the network between them. Nodes may differ.

    nodes:                              a list; each entry stands for `count` equal nodes (1 if not said) of
      - device: rtx2080ti                 a device, so many `devices` to a node (1 if not said),
        devices: 4
        count: 2
        links: pcie3-x16                  joined by LINK[:COUNT] (else: what is known of such nodes)
      - node: dgx-h100                    or a known machine (`data/nodes`),
      - instance: aws:p4d.24xlarge        or one that a provider rents out
        count: 2
    network: infiniband-ndr:8           LINK[:CARDS] between all nodes (else: what is known of each)

Here the file is only read and checked; `hardware` and `clusters` know what it describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData, MissingData, UnknownName, nearest
from foretrain.facts.links import link

SUFFIXES = (".yaml", ".yml")
_KEYS = ("nodes", "network")
_NAMING = ("device", "node", "instance")
_ENTRY_KEYS = (*_NAMING, "devices", "count", "links")
_EXAMPLE = "nodes: [{device: rtx2080ti, devices: 4, count: 2}, {node: dgx-h100}]"


@dataclass(frozen=True)
class NodeEntry:
    """So many equal nodes; `named_by` is the key that says what they are, `name` what it says."""

    named_by: str
    name: str
    devices: int
    count: int
    links: str | None


@dataclass(frozen=True)
class ClusterFile:
    """What a cluster file says."""

    file: str
    entries: tuple[NodeEntry, ...]
    network: str | None

    def place(self, number: int) -> str:
        """How an entry is called in errors, counted from 0."""
        return f"nodes, entry {number + 1}"


def is_cluster_file(text: str) -> bool:
    """Whether a name of hardware is that of a file."""
    return text.endswith(SUFFIXES)


def read_cluster_file(path: str | Path) -> ClusterFile:
    """The contents of a cluster file, checked; a malformed one raises `InvalidData` that names the key."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise MissingData(f"no cluster file {file}; the least of one is `{_EXAMPLE}`")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(str(file), f"is not text: {error}") from error
    return parse_cluster(text, str(file))


def parse_cluster(text: str, file: str) -> ClusterFile:
    """The same from the text of the file."""
    import yaml

    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidData(file, f"is not YAML: {error}") from error
    if not isinstance(content, Mapping):
        raise InvalidData(file, f"is not a list of `key: value` lines; the least is `{_EXAMPLE}`")
    _refuse_unknown(content, _KEYS, file, "")
    nodes = content.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        raise InvalidData(file, f"nodes must be a list of at least one entry, e.g. `{_EXAMPLE}`")
    entries = tuple(_entry(entry, file, f"nodes, entry {number}: ") for number, entry in enumerate(nodes, 1))
    return ClusterFile(file, entries, _link(content, "network", file, ""))


def _entry(entry: Any, file: str, where: str) -> NodeEntry:
    if not isinstance(entry, Mapping):
        raise InvalidData(file, f"{where}{entry!r} is not of the form {{device: t4, devices: 4, count: 2}}")
    _refuse_unknown(entry, _ENTRY_KEYS, file, where)
    naming = [key for key in _NAMING if entry.get(key) is not None]
    if len(naming) != 1:
        said = f"both {' and '.join(naming)}" if naming else f"none of {', '.join(_NAMING)}"
        raise InvalidData(file, f"{where}gives {said}; name one")
    (named_by,) = naming
    name = entry[named_by]
    if not isinstance(name, str):
        raise InvalidData(file, f"{where}{named_by} is {name!r}; it must be a name")
    if named_by != "device" and "devices" in entry:
        raise InvalidData(
            file, f"{where}devices is known of a {named_by}; leave it out, or name the device instead"
        )
    return NodeEntry(
        named_by=named_by,
        name=name,
        devices=_whole(entry, "devices", file, where),
        count=_whole(entry, "count", file, where),
        links=_link(entry, "links", file, where),
    )


def _refuse_unknown(content: Mapping[Any, Any], known: tuple[str, ...], file: str, where: str) -> None:
    for key in content:
        if key not in known:
            near = nearest(str(key), known)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
            raise InvalidData(file, f"{where}no key {str(key)!r}; {hint}")


def _whole(entry: Mapping[Any, Any], key: str, file: str, where: str) -> int:
    value = entry.get(key, 1)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidData(file, f"{where}{key} is {value!r}; it must be a whole number of at least 1")
    return value


def _link(content: Mapping[Any, Any], key: str, file: str, where: str) -> str | None:
    """The name of a link, perhaps with a count; that a link of this name exists is checked."""
    value = content.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidData(file, f"{where}{key} is {value!r}; it must be LINK or LINK:COUNT")
    try:
        link(value.partition(":")[0])
    except UnknownName as error:
        raise InvalidData(file, f"{where}{key}: {error}") from error
    return value
