"""Machines: known nodes, clusters as files, and hardware as people write it.

Hardware is `h100-sxm`, `h100-sxm:8x4`, `aws:p4d.24xlarge:2`, a node of `data/nodes/*.toml`, or a cluster
`FILE.yaml`. All of it is a cluster: groups of equal nodes. A homogeneous cluster has one group; one device is
a node of one. A cluster file:

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
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import (
    TEXT,
    OptionKind,
    decode,
    option,
    read_mapping,
    records,
    whole_number,
)
from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName, nearest
from foretrain.facts.devices import (
    THIS_MACHINE,
    Device,
    device,
    devices,
    names_this_machine,
    refuse_unmodelled,
    with_watts,
)
from foretrain.facts.links import Link, link
from foretrain.facts.sheets import Sheet, read_registry
from foretrain.registry import Registry

if TYPE_CHECKING:
    from foretrain.facts.offers import Offer
    from foretrain.facts.topology import Topology

TOPOLOGIES = ("nvswitch", "nvlink-mesh", "pcie-switch", "two-bridges", "host-memory", "host-bridge")
"""How the devices of a node can be joined, best first."""
SUFFIXES = (".yaml", ".yml")
_NAMING = ("device", "node", "instance")
_EXAMPLE = "nodes: [{device: rtx2080ti, devices: 4, count: 2}, {node: dgx-h100}]"
FORMS = "DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml"


@dataclass(frozen=True)
class Node:
    """One type of machine; `provider` sells or rents it."""

    id: str
    name: str
    provider: str
    aliases: tuple[str, ...]
    sheet: Sheet

    @property
    def device(self) -> str:
        """Id of the device it holds."""
        return self.sheet.text("device")

    @property
    def devices(self) -> int:
        """How many devices it holds."""
        return int(self.sheet.number("devices_per_node"))

    @property
    def intra(self) -> Link:
        """The link between its devices."""
        return link(self.sheet.text("intra_link"))

    @property
    def intra_topology(self) -> str:
        """How the links join its devices: one of `TOPOLOGIES`."""
        return self.sheet.text("intra_topology")

    @property
    def inter(self) -> Link | None:
        """The link of one network card, or None if nothing is known of the network."""
        return link(self.sheet.text("inter_link")) if self.sheet.has("inter_link") else None

    @property
    def nics(self) -> int:
        """Network cards that devices use between nodes; an unknown network raises `MissingData`."""
        return int(self.sheet.number("nics_per_node"))

    @property
    def single_flow_bytes_per_second(self) -> float | None:
        """What its cloud lets one TCP flow have, one direction; None if it sets no limit."""
        name = "single_flow_bytes_per_second_per_direction"
        return self.sheet.number(name) if self.sheet.has(name) else None

    @property
    def intra_bytes_per_second_per_device(self) -> float:
        """Achievable rate of all links of one device to its peers, one direction."""
        links_per_device = self.sheet.number("intra_links_per_device")
        return links_per_device * self.intra.achievable_bytes_per_second_per_direction

    @property
    def inter_bytes_per_second(self) -> float:
        """Achievable rate of its network cards together, one direction; unknown raises `MissingData`."""
        network = link(self.sheet.text("inter_link"))
        return self.nics * network.achievable_bytes_per_second_per_direction


@cache
def nodes() -> Registry[Node]:
    """All known nodes, by id and alias (`aws:p4d.24xlarge`)."""
    return read_registry("node", Node, "nodes", hint="")


def node(name: str) -> Node:
    """The node called `name`; an unknown one raises `UnknownName` with the nearest."""
    return nodes()[name]


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


_LINK = OptionKind("LINK[:COUNT]", "LINK or LINK:COUNT", _read_link)


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


@dataclass(frozen=True)
class Cluster:
    """Groups of equal nodes; no two groups are the same."""

    name: str
    groups: tuple[Hardware, ...]

    @property
    def devices(self) -> int:
        """All devices."""
        return sum(group.devices for group in self.groups)

    @property
    def nodes(self) -> int:
        """All nodes."""
        return sum(group.nodes for group in self.groups)

    @property
    def is_homogeneous(self) -> bool:
        """Whether all nodes are equal."""
        return len(self.groups) == 1

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each group; with its links where another group has the same name."""
        names = [group.name for group in self.groups]
        return tuple(
            f"{group.name} ({group.links or 'default links'})" if names.count(group.name) > 1 else group.name
            for group in self.groups
        )


def cluster(text: str) -> Cluster:
    """The cluster that `text` names: a device, an instance, a node type, or a cluster file."""
    if is_cluster_file(text):
        groups = groups_of(read_cluster_file(text))
        return Cluster(text if len(groups) > 1 else groups[0].name, groups)
    return Cluster(text, (hardware(text),))


def with_power_limit(machines: Cluster, watts: float | None) -> Cluster:
    """The cluster with every device limited to `watts`; None leaves the limits of the data sheets."""
    if watts is None:
        return machines
    groups = tuple(replace(group, device=with_watts(group.device, watts)) for group in machines.groups)
    return Cluster(f"{machines.name} at {watts:g} W", groups)


def with_topology(machines: Cluster, topology: Topology | None) -> Cluster:
    """The cluster with the devices of each node joined as in a topology; None leaves what is known."""
    if topology is None:
        return machines
    if not machines.is_homogeneous:
        raise InvalidRequest(
            f"`topology` describes one kind of node, and {machines.name} has {len(machines.groups)}; name "
            "the file of each as `topology` in the cluster file"
        )
    from foretrain.facts.topology import links_among

    (group,) = machines.groups
    links = links_among(topology, group.device, group.devices_per_node)
    return Cluster(machines.name, (replace(group, links=links),))


@dataclass(frozen=True)
class Hardware:
    """Equal nodes of equal devices; `node` and `offer` where the machine type is known.

    `links` joins the devices of a node and `network` the nodes where a cluster file says so: LINK[:COUNT].
    """

    name: str
    device: Device
    devices_per_node: int
    nodes: int
    node: Node | None = None
    offer: Offer | None = None
    links: str | None = None
    network: str | None = None

    @property
    def devices(self) -> int:
        """All devices."""
        return self.devices_per_node * self.nodes


def hardware(text: str) -> Hardware:
    """The hardware that `text` names; unknown names raise `UnknownName`, other nonsense `InvalidRequest`."""
    if is_cluster_file(text):
        return _equal_nodes(text)
    provider, _, rest = text.partition(":")
    if rest and _is_provider(provider) and provider not in nodes():
        return _rented(text)
    if text in nodes():
        return _machine(text, nodes()[text], 1)
    name, per_node, count = _counts(text)
    if names_this_machine(name) and THIS_MACHINE not in devices():
        present = _present_gpus(text)
        if present is not None:
            return present
    return Hardware(text, device(name), per_node, count)


def _is_provider(name: str) -> bool:
    from foretrain.facts.providers import providers

    return name in providers()


def _present_gpus(text: str) -> Hardware | None:
    """The GPUs that this machine's driver reports, all or as many as `here:COUNT` says; None without one.

    Nodes of `here:COUNTxNODES` are joined as this one.
    """
    from foretrain.facts.topology import ask_driver, links_among

    report = ask_driver()
    if report is None:
        return None
    if len(set(report.names)) > 1:
        raise InvalidRequest(
            f"the GPUs of this machine differ ({', '.join(dict.fromkeys(report.names))}); name the one that "
            "trains as a device"
        )
    name, per_node, nodes_count = _counts(text)
    own = device(report.names[0])
    count = per_node if name != text else len(report.names)
    if count > len(report.names):
        raise InvalidRequest(
            f"{text} asks for {count} GPUs; the driver of this machine reports {len(report.names)}"
        )
    machine = Hardware(text, own, count, nodes_count)
    if report.topology is None or count == 1:
        return machine
    return replace(machine, links=links_among(report.topology, own, count))


def _counts(text: str) -> tuple[str, int, int]:
    name, colon, counts = text.rpartition(":")
    if not colon:
        return text, 1, 1
    match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", counts)
    if not match:
        from foretrain.facts.providers import providers

        provider = text.partition(":")[0]
        if provider not in devices():
            refuse_unmodelled(text.replace(":", "-"))
        near = nearest(provider, providers()) if provider not in devices() else ()
        hint = f"; did you mean the provider {' or '.join(near)}?" if near else ""
        raise InvalidRequest(f"{text!r} is not hardware: write {FORMS}, e.g. h100-sxm:8x4{hint}")
    return name, int(match.group(1)), int(match.group(2) or 1)


def _rented(text: str) -> Hardware:
    """`provider:instance` or `provider:instance:nodes`; instance names may hold colons themselves."""
    from foretrain.facts.offers import offers_named

    name, _, last = text.rpartition(":")
    has_count = ":" in name and re.fullmatch(r"[1-9]\d*", last) is not None and not name.endswith(":")
    machine, count = (name, int(last)) if has_count else (text, 1)
    offer = offers_named(machine)[0]
    if offer.device is None:
        raise MissingData(
            f"{offer.provider} does not say which {offer.family} {offer.instance} has; name the device itself"
        )
    known = nodes().find(machine)
    return Hardware(text, device(offer.device), offer.count, count, known, offer)


def _machine(text: str, node: Node, count: int) -> Hardware:
    return Hardware(text, device(node.device), node.devices, count, node)


def _equal_nodes(path: str) -> Hardware:
    """The nodes of a cluster file, which must be equal."""
    groups = groups_of(read_cluster_file(path))
    if len(groups) > 1:
        listed = ", ".join(group.name for group in groups)
        raise InvalidRequest(
            f"{path} describes a heterogeneous cluster ({listed}), and this takes a homogeneous one; "
            "`foretrain predict` supports heterogeneous clusters"
        )
    return groups[0]


def groups_of(file: ClusterFile) -> tuple[Hardware, ...]:
    """The nodes of a cluster file, equal ones together, in the order they are first named."""
    groups: dict[Hardware, int] = {}
    for number, entry in enumerate(file.entries):
        try:
            one = replace(_one_node(entry), network=file.network)
            one = replace(one, links=_links_of(entry, one))
        except (UnknownName, InvalidRequest, MissingData) as error:
            raise InvalidData(file.file, f"{file.place(number)}: {error}") from error
        groups[one] = groups.get(one, 0) + entry.count
    return tuple(_repeated(one, count) for one, count in groups.items())


def _links_of(entry: NodeEntry, one: Hardware) -> str | None:
    if entry.topology is None:
        return entry.links
    from foretrain.facts.topology import links_among, read_topology

    return links_among(read_topology(entry.topology), one.device, one.devices_per_node)


def _one_node(entry: NodeEntry) -> Hardware:
    if entry.named_by == "instance":
        instance = hardware(entry.name)
        if instance.offer is None or instance.nodes > 1:
            raise InvalidRequest(f"instance is {entry.name!r}; write PROVIDER:INSTANCE, how many as count")
        return instance
    if entry.named_by == "node":
        machine = nodes()[entry.name]
        return _machine(machine.id, machine, 1)
    known = device(entry.name)
    return Hardware(known.id, known, entry.devices, 1)


def _repeated(one: Hardware, count: int) -> Hardware:
    """`count` identical nodes, with the name that a user would write."""
    if one.node is None and one.offer is None:
        counts = f"{one.devices_per_node}x{count}" if count > 1 else str(one.devices_per_node)
        name = one.name if counts == "1" else f"{one.name}:{counts}"
    else:
        name = one.name if count == 1 else f"{one.name}:{count}"
    return replace(one, name=name, nodes=count)
