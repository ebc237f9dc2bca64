"""The network of a cluster: one tier of links inside a node and one between nodes, at achieved rates.

**Facts.** A known node has its own links. Otherwise the links are those of machines with the same device (an
H100 SXM is on an NVSwitch), else the device's PCI Express lanes: through switches, or through host memory if
the device has no peer access. Such assumptions are listed in `notes`. Links given by name override both:
`LINK` or `LINK:COUNT`, where COUNT is the number of network cards of a node (`infiniband-ndr:8`) or of links
of a device (`nvlink2:6`); PCI Express with its topology, `pcie4-x16@host-bridge`, or the topology alone;
NVLink pair by pair, `nvlink2@0-1:1,0-2:2,1-2:1`, as `facts/topology.py` reads it from `nvidia-smi topo -m`.

**Meshes.** Where devices have direct links (DGX-1: a hybrid cube mesh) the rate depends on which devices take
part. A ring is a Hamiltonian cycle through them; each cycle is used in both directions, so a set of
link-disjoint cycles gives twice as many rings, each at the rate of one link. Two devices have no cycle: their
links count once. Without a cycle a tree remains, which sends n bytes over each of its links in both
directions: 2(p-1)/p rings.

**PCI Express is shared.** With d active devices, each gets (2/d)^c of the rate of a pair: c is 1 for a bus of
fixed capacity and 0 for a switch without contention. It is a fact of the topology (`facts/links.py`), or of
the node where that very machine was measured.

**TCP flows.** Between nodes a ring is one flow in each direction, and clouds limit the rate of one flow: on
EC2, 5 Gbit/s of 50. The gradients of Sia's four-GPU T4 nodes reached 0.5 to 0.8 GB/s, which agrees.

**Heterogeneous clusters** (`network_among`). A ring, and each rail of a hierarchy, passes through every node,
so the slowest node determines the rate: the smallest rates and the largest latencies of each tier count.
Nodes with different numbers of devices are approximated by nodes of equal size; the rate of a node's network
does not depend on how many of its devices share it.

**Calibration.** Links achieve a share of their rate. Latencies are in cycles of the device's boost clock,
since they are spent in kernels that poll; `pace` is the latency of a link over that of its technology. Links
that were not measured have the values of their technology.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, pairwise, permutations
from statistics import fmean, quantiles
from typing import Any

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware, Node, nodes
from foretrain.facts.links import NETWORK, Link, LinkKind, link, links, own_links, topologies
from foretrain.facts.sheets import Fact, FactKind
from foretrain.persisted import restore
from foretrain.units import GBIT

FILE = "collectives.json"
HOST_BRIDGE = "host-bridge"
_DEVICES = (2, 4, 8)


@dataclass(frozen=True)
class Behaviour:
    """The constants of one technology in the equations of `algorithms`.

    `share` is the achieved rate over the rate NCCL plans with; `contention` is by topology, see `network`.
    """

    share: float
    copy_bytes_per_second: float
    startup_cycles: float
    step_cycles: float
    low_latency_share: float
    bulk_startup_cycles: float
    bulk_step_cycles: float
    saturation_bytes: float
    peer_share: float
    peer_copy_bytes_per_second: float
    peer_startup_cycles: float
    peer_step_cycles: float
    in_switch_share: float
    contention: Mapping[str, float]


@dataclass(frozen=True)
class LinkFit:
    """The fit of one link: achieved rate over the rate NCCL plans with, and the pace of its steps.

    `in_switch_share` is the rate of sums in the switch over the nominal rate; 0 without such sums.
    """

    share: float
    pace: float
    in_switch_share: float = 0.0
    contention: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CollectiveCalibration:
    """Technologies, measured links, and quantiles of measured / predicted for measured and other links."""

    technologies: Mapping[str, Behaviour]
    links: Mapping[str, LinkFit]
    measured: Mapping[str, Quantiles] = field(default_factory=dict)
    unmeasured: Mapping[str, Quantiles] = field(default_factory=dict)

    def link(self, kind: LinkKind, link_id: str) -> LinkFit:
        """The fit of a link; the mean of its technology if it was not measured."""
        behaviour = self.technologies[kind.behaviour]
        return self.links.get(link_id) or LinkFit(behaviour.share, 1.0, behaviour.in_switch_share)

    def is_measured(self, link_id: str, topology: str) -> bool:
        """Whether a link was measured and is the same in all machines: hosts without peer access are not."""
        shared = topologies().find(topology)
        return link_id in self.links and (shared is None or shared.has_peers)

    def spread(self, kind: LinkKind, link_id: str, topology: str) -> Quantiles:
        """Quantiles of measured / predicted for a link; without peer access those among such hosts."""
        shared = topologies().find(topology)
        if shared is not None and not shared.has_peers:
            return restore(Quantiles, unseen_spread(dict(enumerate(shared.exponents))))
        known = self.measured if self.is_measured(link_id, topology) else self.unmeasured
        return known[kind.behaviour]


def unseen_spread(machines: Mapping[Any, float]) -> dict[str, float]:
    """Quantiles of measured / predicted of 2, 4 and 8 devices of a machine, predicted from the others."""
    ratios = sorted(
        (devices / 2) ** (own - fmean(value for other, value in machines.items() if other != name))
        for name, own in machines.items()
        for devices in _DEVICES
    )
    p10, p50, p90 = quantiles(ratios, n=10, method="inclusive")[::4]
    return {"p10": p10, "p50": p50, "p90": p90, "cases": len(ratios)}


@cache
def calibration() -> CollectiveCalibration:
    """The calibration that ships with the package."""
    return read(calibration_content(FILE))


def read(content: Mapping[str, Any]) -> CollectiveCalibration:
    """A calibration from the content of its file."""
    return restore(CollectiveCalibration, {**content, **content["spread"]}, FILE)


Links = Mapping[tuple[int, int], int]


@cache
def rings_by_size(text: str) -> tuple[float, ...]:
    """Rings among the first 1, 2, 3 ... devices of a mesh given as `0-1:1 0-2:1 0-3:2 ...`."""
    links = _read(text)
    devices = 1 + max(end for pair in links for end in pair)
    return (0.0, *(rings(links, size) for size in range(2, devices + 1)))


def rings(links: Links, size: int) -> float:
    """Rings of one link's rate that `size` devices can use at once."""
    if size == 2:
        return float(links.get((0, 1), 0))
    cycles = _disjoint(dict(links), _cycles(size), _max_cycles(links, size))
    return 2.0 * cycles if cycles else 2 * (size - 1) / size


def _max_cycles(links: Links, size: int) -> int:
    """An upper bound of the number of disjoint cycles: each takes two links of every device."""
    ends = [0] * size
    for (first, second), count in links.items():
        if second < size:
            ends[first] += count
            ends[second] += count
    return min(ends) // 2


def _read(text: str) -> dict[tuple[int, int], int]:
    links: dict[tuple[int, int], int] = {}
    for item in text.split():
        ends, _, count = item.partition(":")
        first, second = sorted(int(end) for end in ends.split("-"))
        links[first, second] = int(count)
    return links


@cache
def _cycles(size: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """All cycles through all devices, each once, as sorted pairs of neighbours."""
    cycles = []
    for rest in permutations(range(1, size)):
        if rest[0] < rest[-1]:
            order = (0, *rest, 0)
            cycles.append(tuple((min(pair), max(pair)) for pair in pairwise(order)))
    return tuple(cycles)


def _disjoint(
    free: dict[tuple[int, int], int], cycles: tuple[tuple[tuple[int, int], ...], ...], most: int
) -> int:
    """The largest number of disjoint cycles of the free links; the search ends at `most`."""
    possible = [cycle for cycle in cycles if all(free.get(pair, 0) > 0 for pair in cycle)]
    if not possible or most == 0:
        return 0
    best = 1
    for index, cycle in enumerate(possible):
        left = dict(free)
        for pair in cycle:
            left[pair] -= 1
        best = max(best, 1 + _disjoint(left, tuple(possible[index:]), most - 1))
        if best >= most:
            break
    return best


LINK_FORM = "LINK[:COUNT]"
INSIDE_FORM = "LINK[@TOPOLOGY][:COUNT]"
MESH, SWITCH, PCIE_SWITCH, HOST_MEMORY = "nvlink-mesh", "nvswitch", "pcie-switch", "host-memory"
_TOPOLOGIES = {LinkKind.NVSWITCH: SWITCH, LinkKind.NVLINK: MESH, LinkKind.XGMI: MESH}
_MESH_FORM = re.compile(r"\d+-\d+:\d+(,\d+-\d+:\d+)*")
_REFERENCE = "nvidia"
_LOOPBACK = "ethernet-40g"
"""Workers of the present machine exchange over its virtual network, which no cable limits."""
_PAIR = 2


@dataclass(frozen=True)
class Tier:
    """One kind of link with its achieved rates in one direction.

    `bytes_per_second_per_device` is the rate of one device while all devices of the node are active,
    `bytes_per_second_alone` while few are (two inside a node, one on a network), `bytes_per_second_per_node`
    that of all network cards of a node together. `rings` is for meshes: rings of one link's rate among the
    first 1, 2, 3 ... devices. `flow_bytes_per_second` is the limit of one TCP flow. `latency_seconds` is that
    of one protocol step, `startup_seconds` that of one collective.
    """

    name: str
    kind: LinkKind
    topology: str
    bytes_per_second_per_device: float
    bytes_per_second_per_node: float | None
    latency_seconds: float
    startup_seconds: float
    source: str
    assumed: bool
    link: str
    nominal_bytes_per_second: float
    bytes_per_second_alone: float
    contention: float = 0.0
    rings: tuple[float, ...] = ()
    cards: int = 1
    in_switch_bytes_per_second: float = 0.0
    flow_bytes_per_second: float | None = None

    @property
    def peer_access(self) -> bool:
        """Whether devices access each other's memory without staging in host memory."""
        known = topologies().find(self.topology)
        return not self.kind.joins_nodes and (known is None or known.has_peers)

    def bytes_per_second_among(self, members: int, active: int, flows: int = 1) -> float:
        """The rate of one of `members` devices of a node while `active` devices of the node communicate.

        Between nodes, over `flows` flows: one in a ring, one to each other node in an all-to-all.
        """
        if self.bytes_per_second_per_node is not None:
            node = self.bytes_per_second_per_node
            if self.flow_bytes_per_second is not None:
                node = min(node, flows * self.flow_bytes_per_second)
            return min(self.bytes_per_second_alone, node / active)
        if self.rings:
            return self.bytes_per_second_alone * self.rings[min(members, len(self.rings)) - 1]
        return self.bytes_per_second_alone * float((_PAIR / max(_PAIR, active)) ** self.contention)


@dataclass(frozen=True)
class Network:
    """Equal nodes of equal devices; `intra` is None with one device per node, `inter` with one node."""

    devices_per_node: int
    nodes: int
    intra: Tier | None
    inter: Tier | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Selected:
    """A link, its number, its topology, and the reason for it."""

    link: Link
    count: int
    topology: str
    assumed: bool = False
    mesh: str = ""
    note: str = ""
    flow_bytes_per_second: float | None = None
    sharing_exponent: float | None = None

    @property
    def name(self) -> str:
        """The links in words."""
        return self.link.id if self.count == 1 else f"{self.count} x {self.link.id}"


def network_of(
    hardware: Hardware,
    intra: str | None = None,
    inter: str | None = None,
    learned: CollectiveCalibration | None = None,
) -> Network:
    """The network of hardware; `intra` and `inter` name links that replace the known ones."""
    learned = learned or calibration()
    # Devices without a machine are connected as in machines that are known to have them.
    machines = [hardware.node] if hardware.node else list(_nodes_with(hardware.device.id))
    inside = outside = None
    if hardware.devices_per_node > 1:
        inside = (
            _find_named_inside(intra, hardware.device) if intra else _find_known_inside(hardware, machines)
        )
    if hardware.nodes > 1:
        outside = _find_named_outside(inter) if inter else _find_known_outside(hardware, machines)
    return Network(
        devices_per_node=hardware.devices_per_node,
        nodes=hardware.nodes,
        intra=None if inside is None else _inside_tier(inside, hardware, learned),
        inter=None if outside is None else _outside_tier(outside, hardware, learned),
        notes=tuple(each.note for each in (inside, outside) if each is not None and each.note),
    )


def with_factor(network: Network, intra: float = 1.0, inter: float = 1.0) -> Network:
    """The network with the rates of its links multiplied by factors."""
    if min(intra, inter) <= 0:
        raise InvalidRequest(f"factors of links must be above 0, got {min(intra, inter)}")
    return replace(
        network,
        intra=None if network.intra is None else _faster(network.intra, intra),
        inter=None if network.inter is None else _faster(network.inter, inter),
    )


def _faster(tier: Tier, factor: float) -> Tier:
    if factor == 1:
        return tier
    per_node, flow = tier.bytes_per_second_per_node, tier.flow_bytes_per_second
    return replace(
        tier,
        name=f"{tier.name} x {factor:g}",
        bytes_per_second_per_device=tier.bytes_per_second_per_device * factor,
        bytes_per_second_per_node=None if per_node is None else per_node * factor,
        bytes_per_second_alone=tier.bytes_per_second_alone * factor,
        flow_bytes_per_second=None if flow is None else flow * factor,
        nominal_bytes_per_second=tier.nominal_bytes_per_second * factor,
        in_switch_bytes_per_second=tier.in_switch_bytes_per_second * factor,
        assumed=True,
    )


@cache
def _nodes_with(device_id: str) -> tuple[Node, ...]:
    """Known nodes with a device, the vendor's own first."""
    matching = [node for node in nodes().values() if node.device == device_id]
    return tuple(sorted(matching, key=lambda node: (node.provider != _REFERENCE, node.id)))


def _parse_link(text: str) -> tuple[Link, int]:
    match = re.fullmatch(r"(.+?)(?::([1-9]\d*))?", text.strip())
    if match is None or ":" in match.group(1):
        raise InvalidRequest(f"{text!r} is not a link: write {LINK_FORM}, e.g. infiniband-ndr:8 or pcie4-x16")
    return link(match.group(1)), int(match.group(2) or 1)


def _find_named_inside(text: str, device: Device) -> _Selected:
    """A link by name; PCI Express in the topology given after `@`, or alone, else that of the device."""
    if text.strip() in topologies():
        return replace(_lanes(device, text.strip()), assumed=False, note="")
    name, at, rest = text.partition("@")
    if _MESH_FORM.fullmatch(rest):
        pairs = rest.replace(",", " ")
        own = sum(count for pair, count in _read(pairs).items() if 0 in pair)
        return _Selected(link(name), own, MESH, mesh=pairs)
    topology, colon, count_text = rest.partition(":")
    named, count = _parse_link(f"{name}{colon}{count_text}" if at else text)
    if named.joins_nodes:
        near = ", ".join(name for name, each in links().items() if not each.joins_nodes)
        raise InvalidRequest(f"{named.id} connects nodes, not devices of a node; links inside a node: {near}")
    if named.kind.is_pcie:
        return _select_pcie(named, count, device, topologies()[topology.strip()].id if at else None)
    if at:
        raise InvalidRequest(
            f"{text!r}: only PCI Express has a topology (pcie4-x16@{PCIE_SWITCH}); write {named.id} alone"
        )
    return _Selected(named, count, _TOPOLOGIES[named.kind])


def _find_named_outside(text: str) -> _Selected:
    named, count = _parse_link(text)
    if not named.joins_nodes:
        near = ", ".join(name for name, each in links().items() if each.joins_nodes)
        raise InvalidRequest(f"{named.id} connects devices of a node; links between nodes: {near}")
    return _Selected(named, count, NETWORK)


def _find_known_inside(hardware: Hardware, machines: Sequence[Node]) -> _Selected:
    device = hardware.device
    if hardware.node is None and not device.has_pcie_peer_access and device.is_pcie_card:
        machines = [each for each in machines if not each.intra.kind.is_pcie]  # hosts of GeForce cards differ
    if machines:
        # The most frequent link; of machines with it the first, which is the vendor's own.
        (kind, _), _ = Counter((each.intra.id, each.intra_topology) for each in machines).most_common(1)[0]
        node = next(each for each in machines if each.intra.id == kind)
        guessed = node is not hardware.node
        fact = node.sheet.fact("intra_link")
        assumed = guessed or (fact is not None and fact.kind is FactKind.ASSUMED)
        note = f"devices of a node assumed to be connected as in {node.name}: {node.intra.name}"
        mesh = node.sheet.text("mesh_links") if node.sheet.has("mesh_links") else ""
        count = int(node.sheet.number("intra_links_per_device"))
        exponent = node.sheet.number("sharing_exponent") if node.sheet.has("sharing_exponent") else None
        return _Selected(
            node.intra, count, node.intra_topology, assumed, mesh, note if guessed else "",
            sharing_exponent=exponent,
        )  # fmt: skip
    if not device.is_pcie_card:
        for own in (LinkKind.NVLINK, LinkKind.XGMI):
            fact = device.sheet.fact(f"{own}_bytes_per_second_per_direction")
            if fact is not None:
                return _own_links(device, own, fact)
    return _lanes(device)


def _own_links(device: Device, kind: LinkKind, fact: Fact) -> _Selected:
    """All links of a device without a known machine: NVLink to a switch, xGMI to each other device."""
    if kind.is_nvlink:
        note = "devices of a node assumed to be connected by all their NVLink links through a switch"
        return _Selected(own_links(kind, fact), 1, SWITCH, assumed=True, note=note)
    peers = int(device.sheet.number("xgmi_peers"))
    note = f"devices of a node assumed to be connected by xGMI, each to {peers} others"
    mesh = " ".join(f"{first}-{second}:1" for first, second in combinations(range(peers + 1), 2))
    return _Selected(own_links(kind, fact, peers), peers, MESH, assumed=True, mesh=mesh, note=note)


def _lanes(device: Device, topology: str | None = None) -> _Selected:
    """The PCI Express lanes of a device, in a topology or that which is usual for it."""
    if not device.sheet.has("pcie_generation"):
        raise MissingData(
            f"the links between several {device.id} of a node are unknown; set links to {INSIDE_FORM}, e.g. "
            "pcie4-x16"
        )
    lanes = link(f"pcie{device.sheet.number('pcie_generation'):g}-x{device.sheet.number('pcie_lanes'):g}")
    return _select_pcie(lanes, 1, device, topology)


def _select_pcie(lanes: Link, count: int, device: Device, topology: str | None) -> _Selected:
    """PCI Express in a topology; if none is given, switches for devices that are peers, else host memory."""
    if topology is not None:
        return _Selected(lanes, count, topologies()[topology].id)
    usual = topologies()[PCIE_SWITCH if device.has_pcie_peer_access else HOST_MEMORY]
    others = ", ".join(f"{lanes.id}@{name}" for name in topologies() if name != usual.id)
    note = f"devices of a node assumed to be connected by {lanes.name} {usual.name} (else `links`: {others})"
    return _Selected(lanes, count, usual.id, assumed=True, note=note)


def _find_known_outside(hardware: Hardware, machines: Sequence[Node]) -> _Selected:
    node = next((each for each in machines if each.inter is not None), None)
    if node is None or node.inter is None:
        if hardware.device.is_this_machine:
            note = f"workers of this machine assumed to be connected as by {_LOOPBACK}"
            return _Selected(link(_LOOPBACK), 1, NETWORK, assumed=True, note=note)
        raise MissingData(
            f"the network between nodes of {hardware.name} is unknown; give `network` as {LINK_FORM}, e.g. "
            "infiniband-hdr:8 or ethernet-25g"
        )
    flow = node.single_flow_bytes_per_second
    if node is hardware.node:
        note = _flow_note(flow)
        return _Selected(node.inter, node.nics, NETWORK, note=note, flow_bytes_per_second=flow)
    cards = max(1, round(node.nics * min(1.0, hardware.devices_per_node / node.devices)))
    note = f"nodes assumed to be connected as {node.name}: {cards} x {node.inter.name}"
    notes = "; ".join(filter(None, (note, _flow_note(flow))))
    return _Selected(node.inter, cards, NETWORK, assumed=True, note=notes, flow_bytes_per_second=flow)


def _flow_note(flow: float | None) -> str:
    return f"rings use one TCP flow, which the cloud limits to {flow / GBIT:g} Gbit/s" if flow else ""


def _inside_tier(selected: _Selected, hardware: Hardware, known: CollectiveCalibration) -> Tier:
    each = selected.link
    behaviour, fit = known.technologies[each.kind.behaviour], known.link(each.kind, each.id)
    second = 1 / hardware.device.clock_hertz
    rings = rings_by_size(selected.mesh) if selected.mesh else ()
    nominal = each.nominal_bytes_per_second_per_direction
    per_link = min(fit.share * each.planned_bytes_per_second_per_direction, nominal)
    alone = per_link if rings else per_link * selected.count
    topology = topologies().find(selected.topology)
    contention = selected.sharing_exponent
    if contention is None:
        contention = 0.0 if topology is None else topology.sharing_exponent
    tier = Tier(
        name=selected.name,
        kind=each.kind,
        topology=selected.topology,
        bytes_per_second_per_device=alone,
        bytes_per_second_per_node=None,
        latency_seconds=behaviour.step_cycles * fit.pace * second,
        startup_seconds=behaviour.startup_cycles * fit.pace * second,
        source=each.source,
        assumed=selected.assumed,
        link=each.id,
        nominal_bytes_per_second=nominal * selected.count,
        bytes_per_second_alone=alone,
        contention=contention,
        rings=rings,
        in_switch_bytes_per_second=each.sums_in_switch * fit.in_switch_share * nominal,
    )
    per_node = hardware.devices_per_node
    return replace(tier, bytes_per_second_per_device=tier.bytes_per_second_among(per_node, per_node))


def _outside_tier(selected: _Selected, hardware: Hardware, known: CollectiveCalibration) -> Tier:
    card = selected.link
    nominal = card.nominal_bytes_per_second_per_direction
    node = card.achievable_bytes_per_second_per_direction * selected.count
    payload = card.achievable_bytes_per_second_per_direction / nominal
    flow = None if selected.flow_bytes_per_second is None else selected.flow_bytes_per_second * payload
    startup = known.technologies[NETWORK].startup_cycles / hardware.device.clock_hertz
    ring = node if flow is None else min(node, flow)
    return Tier(
        name=selected.name,
        kind=card.kind,
        topology=selected.topology,
        bytes_per_second_per_device=ring / hardware.devices_per_node,
        bytes_per_second_per_node=node,
        latency_seconds=card.latency_seconds,
        startup_seconds=startup,
        source=card.source,
        assumed=selected.assumed,
        link=card.id,
        nominal_bytes_per_second=nominal * selected.count,
        bytes_per_second_alone=min(node, _lane_rate(hardware.device, node)),
        cards=selected.count,
        flow_bytes_per_second=flow,
    )


def _lane_rate(device: Device, otherwise: float) -> float:
    """The rate of a device's own lanes: a single device cannot fill eight cards."""
    if not device.sheet.has("pcie_generation"):
        return otherwise
    name = f"pcie{device.sheet.number('pcie_generation'):g}-x{device.sheet.number('pcie_lanes'):g}"
    return link(name).achievable_bytes_per_second_per_direction if name in links() else otherwise


def network_among(groups: Sequence[Hardware], inter: str | None = None) -> Network:
    """The network of all nodes of some groups; `inter` names the link between nodes."""
    if len(groups) == 1:
        (only,) = groups
        return network_of(only, only.links, inter or only.network)
    own = [
        network_of(replace(group, nodes=max(2, group.nodes)), group.links, inter or group.network)
        for group in groups
    ]
    devices, nodes = sum(group.devices for group in groups), sum(group.nodes for group in groups)
    per_node = _even_size(devices, nodes)
    differ = len({group.devices_per_node for group in groups}) > 1
    count = -(-devices // per_node)
    notes = [note for network in own for note in network.notes]
    if differ:
        notes.append(f"exchanges are modelled as among {count} nodes of {per_node} devices")
    return Network(
        devices_per_node=per_node,
        nodes=count,
        intra=_slowest([network.intra for network in own]) if per_node > 1 else None,
        inter=_slowest([network.inter for network in own]),
        notes=tuple(dict.fromkeys(notes)),
    )


def _even_size(devices: int, nodes: int) -> int:
    """Devices per node such that the number of nodes is closest to the given one."""
    sizes = (devices // nodes, -(-devices // nodes))
    return min(sizes, key=lambda size: abs(-(-devices // size) - nodes))


def _slowest(tiers: Sequence[Tier | None]) -> Tier | None:
    """The slowest tier with the lowest rates and highest latencies of all; None if there are none."""
    present = [tier for tier in tiers if tier is not None]
    if not present:
        return None
    worst = min(present, key=_rate)
    if all(tier == worst for tier in present):
        return worst
    each = min(tier.bytes_per_second_per_device for tier in present)
    by_node = [tier.bytes_per_second_per_node for tier in present if tier.bytes_per_second_per_node]
    is_network = bool(by_node)
    alone = min(tier.bytes_per_second_alone for tier in present) if is_network else each
    return replace(
        worst,
        bytes_per_second_per_device=each,
        bytes_per_second_per_node=min(by_node) if is_network else None,
        bytes_per_second_alone=alone,
        latency_seconds=max(tier.latency_seconds for tier in present),
        startup_seconds=max(tier.startup_seconds for tier in present),
        contention=0.0,  # included in the rates
        rings=(),
        in_switch_bytes_per_second=min(tier.in_switch_bytes_per_second for tier in present),
    )


def _rate(tier: Tier) -> float:
    return tier.bytes_per_second_per_node or tier.bytes_per_second_per_device
