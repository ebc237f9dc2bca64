"""Links: what carries data between devices and between nodes, one TOML file each under `data/links/`.

Rates are of one direction. `nvlinkN` is one link, of which a device has several; `nvswitchN` stands for all
links of one device into the switch. A network link is one network card, except the EFA totals of a node.

The latency is that of one more step of a ring, so the α of `t = startup + steps · (α + bytes / B)`.

How PCI Express joins the devices of a node is a *topology* (`data/topologies/`): switches, the host bridges
of two sockets, one host bridge, or host memory where devices cannot reach each other. Devices share the path:
with d of them active, each gets (2/d)^c of the rate of a pair. Machines of one topology differ, so each that
was measured is a fact of its own; their mean is used, and their differences give the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean

from foretrain.errors import UnknownName
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.sheets import FactKind, Sheet, data_root, read_entries
from foretrain.registry import Registry
from foretrain.units import UnitError, parse_bandwidth

_PLANS = "nccl-topology-model"
_INSIDE_NODES = frozenset({"pcie", "nvlink", "nvswitch"})


@cache
def planned_share() -> float:
    """The share of nominal that NCCL plans with on links it has no rate of."""
    planned = calibration_content("links.toml")["planned"]
    return float(planned["share_of_nominal"])


@dataclass(frozen=True)
class Link:
    """One kind of link. `kind` is its technology: pcie, nvlink, nvswitch, infiniband, ethernet or efa."""

    id: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    sheet: Sheet

    @property
    def joins_nodes(self) -> bool:
        """Whether it is a network between nodes; other links join the devices of one."""
        return self.kind not in _INSIDE_NODES

    @property
    def nominal_bytes_per_second_per_direction(self) -> float:
        """Rate on the data sheet, after line coding."""
        return self.sheet.number("nominal_bytes_per_second_per_direction")

    @property
    def achievable_bytes_per_second_per_direction(self) -> float:
        """Rate that large transfers reach in practice."""
        return self.sheet.number("achievable_bytes_per_second_per_direction")

    @property
    def planned_bytes_per_second_per_direction(self) -> float:
        """Rate that NCCL's authors plan with; of links they do not list, a share of nominal."""
        for fact in self.sheet:
            if fact.quantity == "achievable_bytes_per_second_per_direction" and fact.source == _PLANS:
                return float(fact.value)
        return planned_share() * self.nominal_bytes_per_second_per_direction

    @property
    def sums_in_switch(self) -> bool:
        """Whether the switch can do the sums of an all-reduce itself."""
        return self.sheet.has("in_switch_allreduce_bytes_per_second")

    @property
    def latency_seconds(self) -> float:
        """Time of a small message, one way, software included."""
        return self.sheet.number("latency_seconds")


@dataclass(frozen=True)
class PcieTopology:
    """One way in which PCI Express joins the devices of a node."""

    id: str
    name: str
    aliases: tuple[str, ...]
    sheet: Sheet

    @property
    def has_peers(self) -> bool:
        """Whether devices reach each other's memory without staging in host memory."""
        return self.sheet.text("pcie_peers") == "yes"

    @property
    def exponents(self) -> tuple[float, ...]:
        """c of each machine that was measured."""
        return tuple(float(fact.value) for fact in self.sheet if fact.quantity == "sharing_exponent")

    @property
    def sharing_exponent(self) -> float:
        """Their mean, for a machine that was not measured."""
        return fmean(self.exponents)


@cache
def topologies() -> Registry[PcieTopology]:
    """All known topologies of PCI Express, by id and alias."""
    entries = list(read_entries(data_root() / "topologies", ("id", "name")))
    return Registry(
        "topology",
        [PcieTopology(**entry.identity, aliases=entry.aliases, sheet=entry.sheet) for entry in entries],
        name=lambda topology: topology.id,
        aliases=lambda topology: topology.aliases,
        hint=f"Known: {', '.join(entry.identity['id'] for entry in entries)}",
    )


@cache
def links() -> Registry[Link]:
    """All known links, by id and alias."""
    return Registry(
        "link",
        [
            Link(**entry.identity, aliases=entry.aliases, sheet=entry.sheet)
            for entry in read_entries(data_root() / "links", ("id", "name", "kind"))
        ],
        name=lambda link: link.id,
        aliases=lambda link: link.aliases,
        hint="A link is such as pcie4-x16, nvlink3, nvswitch3, ethernet-100g, infiniband-ndr or a rate "
        "(10Gbit/s).",
    )


def list_links(kind: str | None = None) -> tuple[Link, ...]:
    """All links of a kind, or all, by kind and rate."""
    every = list(links().values())
    kinds = sorted({each.kind for each in every})
    if kind is not None and kind not in kinds:
        raise UnknownName("kind of link", kind, kinds, f"Known: {', '.join(kinds)}")
    rate = "nominal_bytes_per_second_per_direction"
    chosen = (each for each in every if kind is None or each.kind == kind)
    return tuple(
        sorted(
            chosen,
            key=lambda each: (each.kind, each.sheet.number(rate) if each.sheet.has(rate) else 0.0, each.id),
        )
    )


def link(name: str) -> Link:
    """The link called `name`, or an Ethernet link of a rate such as `200Mbit/s`.

    An unknown one raises `UnknownName` with the nearest.
    """
    if name not in links():
        try:
            rate = parse_bandwidth(name)
        except UnitError:
            rate = 0.0
        if rate > 0:
            return _ethernet_of(name, rate)
    return links()[name]


def _ethernet_of(name: str, bytes_per_second: float) -> Link:
    """An Ethernet link capped to a rate: payload share and latency of the known link nearest in rate."""
    known = [each for each in links().values() if each.kind == "ethernet"]
    rate = "nominal_bytes_per_second_per_direction"
    nearest = min(known, key=lambda each: abs(math.log(each.sheet.number(rate) / bytes_per_second)))
    factor = bytes_per_second / nearest.sheet.number(rate)
    facts = tuple(
        replace(fact, value=float(fact.value) * factor, kind=FactKind.ASSUMED, note=f"{nearest.id}, scaled")
        if fact.quantity.endswith("bytes_per_second_per_direction")
        else fact
        for fact in nearest.sheet
    )
    return Link(name, f"{name} Ethernet", nearest.kind, (), Sheet(name, facts))
