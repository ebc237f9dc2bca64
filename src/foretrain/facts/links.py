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
from enum import StrEnum
from functools import cache
from statistics import fmean

from foretrain.errors import UnknownName
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.sheets import Fact, FactKind, Sheet, read_registry
from foretrain.registry import Registry
from foretrain.units import UnitError, parse_bandwidth

NVLINK, PCIE, NETWORK = "nvlink", "pcie", "network"
"""What exchanges over links of similar kinds have in common (`collectives.json`)."""
_PLANS, _RATE = "nccl-topology-model", "nominal_bytes_per_second_per_direction"


class LinkKind(StrEnum):
    """The technology of a link."""

    PCIE = "pcie"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    XGMI = "xgmi"
    INFINIBAND = "infiniband"
    ETHERNET = "ethernet"
    EFA = "efa"

    @property
    def is_pcie(self) -> bool:
        """Whether it is PCI Express, which devices of a node share in some topology."""
        return self is LinkKind.PCIE

    @property
    def is_nvlink(self) -> bool:
        """Whether it is NVLink, from device to device or through a switch."""
        return self in (LinkKind.NVLINK, LinkKind.NVSWITCH)

    @property
    def joins_devices(self) -> bool:
        """Whether it is made to join devices, as NVLink and AMD's xGMI are; all others are shared."""
        return self.is_nvlink or self is LinkKind.XGMI

    @property
    def joins_nodes(self) -> bool:
        """Whether it is a network between nodes; other links join the devices of one."""
        return self in (LinkKind.INFINIBAND, LinkKind.ETHERNET, LinkKind.EFA)

    @property
    def behaviour(self) -> str:
        """The kind whose latencies and protocols it has; no xGMI was measured, which is as NVLink is."""
        return NETWORK if self.joins_nodes else PCIE if self.is_pcie else NVLINK


@cache
def planned_share() -> float:
    """The share of nominal that NCCL plans with on links it has no rate of."""
    planned = calibration_content("links.toml")["planned"]
    return float(planned["share_of_nominal"])


@dataclass(frozen=True)
class Link:
    """One kind of link."""

    id: str
    name: str
    kind: LinkKind
    aliases: tuple[str, ...]
    sheet: Sheet

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", LinkKind(self.kind))  # a file says it in text

    @property
    def joins_nodes(self) -> bool:
        """Whether it is a network between nodes; other links join the devices of one."""
        return self.kind.joins_nodes

    @property
    def source(self) -> str:
        """That of its rate on the data sheet."""
        fact = self.sheet.fact(_RATE)
        return fact.source if fact else self.id

    @property
    def nominal_bytes_per_second_per_direction(self) -> float:
        """Rate on the data sheet, after line coding."""
        return self.sheet.number(_RATE)

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
    return read_registry("topology", PcieTopology, "topologies")


@cache
def links() -> Registry[Link]:
    """All known links, by id and alias."""
    hint = (
        "A link is such as pcie4-x16, nvlink3, nvswitch3, ethernet-100g, infiniband-ndr or a rate (10Gbit/s)."
    )
    return read_registry("link", Link, "links", hint)


def list_links(kind: str | None = None) -> tuple[Link, ...]:
    """All links of a kind, or all, by kind and rate."""
    every = list(links().values())
    kinds = sorted({each.kind for each in every})
    if kind is not None and kind not in kinds:
        raise UnknownName("kind of link", kind, kinds, f"Known: {', '.join(kinds)}")
    chosen = (each for each in every if kind is None or each.kind == kind)
    return tuple(
        sorted(
            chosen,
            key=lambda each: (each.kind, each.sheet.number(_RATE) if each.sheet.has(_RATE) else 0.0, each.id),
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
    known = [each for each in links().values() if each.kind is LinkKind.ETHERNET]
    nearest = min(known, key=lambda each: abs(math.log(each.sheet.number(_RATE) / bytes_per_second)))
    factor = bytes_per_second / nearest.sheet.number(_RATE)
    facts = tuple(
        replace(fact, value=float(fact.value) * factor, kind=FactKind.ASSUMED, note=f"{nearest.id}, scaled")
        if fact.quantity.endswith("bytes_per_second_per_direction")
        else fact
        for fact in nearest.sheet
    )
    return Link(name, f"{name} Ethernet", nearest.kind, (), Sheet(name, facts))


def own_links(kind: LinkKind, fact: Fact, count: int = 1) -> Link:
    """One of `count` links of a device whose rate together is a fact of its sheet."""
    rate = replace(fact, quantity=_RATE, value=float(fact.value) / count)
    return Link(kind.value, kind.value, kind, (), Sheet(kind.value, (rate,)))
