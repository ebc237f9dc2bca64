"""The cluster of a scheduling problem as a YAML file: node types, how many nodes, caps and price changes.

max_nodes: 5                        nodes that can be switched on, each with one of the types below
node_types:
  NC6: {gpu: k80, gpus: 1, usd_per_hour: 0.56}
  p4d: {offer: "aws:p4d.24xlarge", market: spot}     price, GPUs, billing and start-up as facts know them
  server: {gpu: gtx1080ti, gpus: 8, usd_per_hour: 1.13}
nodes: [{type: server, count: 2}]   nodes that are owned; their types are not rented
caps: {month: 500usd, users: {alice: 200usd}}
price_changes: [{at: 6h, type: NC6, usd_per_hour: 0.30}]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.decoding import (
    MONEY,
    SECONDS,
    TEXT,
    OptionKind,
    Unreadable,
    choice,
    decode,
    number,
    option,
    read_mapping,
    records,
    whole_number,
)
from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.scheduling.files import NAME
from foretrain.scheduling.problem import Caps, Fleet, Market, NodeGroup, NodeType
from foretrain.scheduling.simulation import PriceChange
from foretrain.units import DAY, HOUR

if TYPE_CHECKING:
    from foretrain.facts.hardware import Hardware

_EXAMPLE = "{max_nodes: 5, node_types: {NC6: {gpu: k80, gpus: 1, usd_per_hour: 0.56}}}"


@dataclass(frozen=True, kw_only=True)
class NodeTypeEntry:
    """A node type as it is written: by its GPUs and price, or by an offer that knows them."""

    gpu: str | None = option(TEXT, "Device, e.g. k80.")
    gpus: int | None = option(whole_number(1), "Devices of a node.")
    usd_per_hour: float | None = option(MONEY, "Price of the whole node.")
    offer: str | None = option(TEXT, "PROVIDER:INSTANCE, in place of GPUs and price.")
    region: str | None = option(TEXT, "Region of the offer (default: the cheapest).")
    market: str | None = option(choice(*(each.value for each in Market)), "How the node is paid.")
    startup: float | None = option(SECONDS, "From switching it on to the first step.")
    billing: float | None = option(SECONDS, "Billing unit: time is rounded up to it.")
    minimum: float | None = option(SECONDS, "Least time that is billed.")
    interruptions_per_hour: float | None = option(number(0), "How often a spot node is taken away.")
    links: str | None = option(TEXT, "Links inside a node, e.g. pcie3-x16 or nvlink2:6.")
    network: str | None = option(TEXT, "Network between nodes, e.g. infiniband-ndr:8.")


@dataclass(frozen=True, kw_only=True)
class _Owned:
    """Nodes that are owned, as they are written."""

    type: str = option(NAME, "Node type.", required=True)
    count: int = option(whole_number(1), "Nodes.", default=1)


@dataclass(frozen=True, kw_only=True)
class _Change:
    """A price change, as it is written."""

    at: float = option(SECONDS, "When.", required=True)
    type: str = option(NAME, "Node type.", required=True)
    usd_per_hour: float = option(MONEY, "Price of the whole node from then on.", required=True)


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Unreadable
    return {str(key): entry for key, entry in value.items()}


def _amounts(value: Any) -> dict[str, float]:
    return {user: MONEY.read(amount) for user, amount in _mapping(value).items()}


@dataclass(frozen=True, kw_only=True)
class _Caps:
    """Caps, as they are written."""

    month: float | None = option(MONEY, "Most that all may spend in 30 days.")
    users: Mapping[str, float] | None = option(
        OptionKind("MAP", "amounts by user, e.g. {alice: 200usd}", _amounts), "By user."
    )


def _read_caps(value: Any) -> _Caps:
    try:
        return decode(_Caps, _mapping(value))
    except InvalidRequest as reason:
        raise Unreadable(str(reason)) from reason


def _read_types(value: Any) -> dict[str, NodeTypeEntry]:
    types: dict[str, NodeTypeEntry] = {}
    for name, entry in _mapping(value).items():
        if not isinstance(entry, Mapping):
            raise Unreadable(
                f"{name}: {entry!r} is not of the form {{gpu: k80, gpus: 1, usd_per_hour: 0.56}}"
            )
        try:
            types[NAME.read(name)] = decode(NodeTypeEntry, {str(key): each for key, each in entry.items()})
        except InvalidRequest as reason:
            raise Unreadable(f"{name}: {reason}") from reason
    if not types:
        raise Unreadable
    return types


@dataclass(frozen=True, kw_only=True)
class _Contents:
    """A cluster file, as it is written."""

    node_types: Mapping[str, NodeTypeEntry] = option(
        OptionKind(
            "MAP", "node types by name, e.g. {NC6: {gpu: k80, gpus: 1, usd_per_hour: 0.56}}", _read_types
        ),
        "Kinds of nodes.",
        required=True,
    )
    max_nodes: int | None = option(whole_number(1), "Most rented nodes that are on at once.")
    nodes: tuple[_Owned, ...] = option(
        records(_Owned, "{type: server, count: 2}"), "Owned nodes.", default=()
    )
    caps: _Caps = option(
        OptionKind("MAP", "{month: 500usd, users: {alice: 200usd}}", _read_caps),
        "Most to spend.",
        default=_Caps(),
    )
    price_changes: tuple[_Change, ...] = option(
        records(_Change, "{at: 6h, type: NC6, usd_per_hour: 0.30}"), "Prices that change.", default=()
    )


@dataclass(frozen=True)
class FleetFile:
    """A fleet with caps, price changes and, for predictions, what facts know of a node of each type."""

    file: str
    fleet: Fleet
    caps: Caps = field(default_factory=Caps)
    price_changes: tuple[PriceChange, ...] = ()
    entries: Mapping[str, NodeTypeEntry] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def node(self, node_type: str) -> Hardware:
        """One node of a type; an unknown device raises `UnknownName`."""
        from foretrain.facts.devices import device
        from foretrain.facts.hardware import Hardware, hardware

        entry, known = self.entries[node_type], self.fleet.types[node_type]
        one = (
            Hardware(known.gpu, device(known.gpu), known.gpus, 1)
            if entry.offer is None
            else hardware(entry.offer)
        )
        return replace(one, links=entry.links or one.links, network=entry.network or one.network)


def read_fleet(file: Path) -> FleetFile:
    """The contents of a cluster file, checked; a malformed one raises `InvalidData` that names the key."""
    raw = read_mapping(file, "cluster file", _EXAMPLE)
    if "node_types" not in raw and "nodes" in raw:
        raise InvalidData(
            str(file),
            "describes hardware to train on (`nodes` without `node_types`), which `predict` takes; the fleet "
            f"of a scheduler is a file such as {_EXAMPLE}",
        )
    content = decode(_Contents, raw, file)
    owned = {each.type for each in content.nodes}
    types: dict[str, NodeType] = {}
    for name, entry in content.node_types.items():
        try:
            types[name] = _node_type(name, entry, is_owned=name in owned)
        except (InvalidRequest, UnknownName, MissingData) as reason:
            raise InvalidData(str(file), f"node type {name}: {reason}") from reason
    try:
        return FleetFile(
            file=str(file),
            fleet=Fleet(types, _groups(content, types)),
            caps=_caps(content.caps),
            price_changes=tuple(_change(each, types) for each in content.price_changes),
            entries=content.node_types,
            notes=tuple(_assumptions(content.node_types)),
        )
    except (InvalidRequest, UnknownName) as reason:
        raise InvalidData(str(file), str(reason)) from reason


def _groups(content: _Contents, types: Mapping[str, NodeType]) -> tuple[NodeGroup, ...]:
    """One group of rented nodes, and one for each type that is owned."""
    counts: dict[str, int] = {}
    for each in content.nodes:
        if each.type not in types:
            raise UnknownName("node type", each.type, types, f"The file has {', '.join(types)}.")
        counts[each.type] = counts.get(each.type, 0) + each.count
    rented = tuple(name for name in types if name not in counts)
    if rented and content.max_nodes is None:
        raise InvalidRequest(
            f"node type {rented[0]} is not owned: give `max_nodes`, the most nodes that are rented at once, "
            f"or list it in `nodes`"
        )
    groups = [NodeGroup(count, (name,)) for name, count in counts.items()]
    if rented and content.max_nodes is not None:
        groups.insert(0, NodeGroup(content.max_nodes, rented))
    return tuple(groups)


def _node_type(name: str, entry: NodeTypeEntry, is_owned: bool) -> NodeType:
    market = Market(entry.market) if entry.market else (Market.OWNED if is_owned else Market.ON_DEMAND)
    if is_owned != (market is Market.OWNED):
        where = "is listed in `nodes`" if is_owned else "is not listed in `nodes`"
        raise InvalidRequest(f"`market` is {market.value}, but the type {where}, the nodes that are owned")
    if entry.offer is not None:
        return _node_type_of_offer(name, entry, market)
    if entry.gpu is None or entry.gpus is None:
        raise InvalidRequest("give `gpu` and `gpus`, or an `offer`")
    if entry.usd_per_hour is None and market is not Market.OWNED:
        raise InvalidRequest("give `usd_per_hour`, the price of the whole node, or an `offer`")
    return NodeType(
        name=name,
        gpu=entry.gpu,
        gpus=entry.gpus,
        usd_per_hour=entry.usd_per_hour or 0.0,
        market=market,
        startup_seconds=entry.startup or 0.0,
        billing_seconds=entry.billing or 0.0,
        minimum_seconds=entry.minimum or 0.0,
        interruptions_per_hour=entry.interruptions_per_hour or 0.0,
    )


def _node_type_of_offer(name: str, entry: NodeTypeEntry, market: Market) -> NodeType:
    """A node type of an offer: what is not given is taken from the facts."""
    from foretrain.facts.hardware import hardware
    from foretrain.facts.providers import providers
    from foretrain.facts.running import SPOT_INTERRUPTIONS, STARTUP, default
    from foretrain.jobs.bill import offer_in

    assert entry.offer is not None
    if market is Market.OWNED:
        raise InvalidRequest("an offer is rented: give `gpu` and `gpus` for owned nodes")
    if entry.gpu is not None or entry.gpus is not None:
        raise InvalidRequest("give `gpu` and `gpus`, or an `offer`, not both")
    machine = hardware(entry.offer)
    if machine.offer is None or machine.nodes > 1:
        raise InvalidRequest(f"`offer` is {entry.offer!r}; write PROVIDER:INSTANCE")
    is_spot = market is Market.SPOT
    offer = offer_in(machine.offer, is_spot, entry.region)
    terms = providers()[offer.provider].billing_terms(offer.instance, offer.historical)
    rate = entry.interruptions_per_hour
    if rate is None:
        rate = default(SPOT_INTERRUPTIONS).quantiles.p50 * HOUR / DAY if is_spot else 0.0
    return NodeType(
        name=name,
        gpu=machine.device.id,
        gpus=machine.devices_per_node,
        usd_per_hour=offer.price(is_spot) if entry.usd_per_hour is None else entry.usd_per_hour,
        market=market,
        startup_seconds=default(STARTUP).quantiles.p50 if entry.startup is None else entry.startup,
        billing_seconds=terms.granularity_seconds if entry.billing is None else entry.billing,
        minimum_seconds=terms.minimum_seconds if entry.minimum is None else entry.minimum,
        interruptions_per_hour=rate,
    )


def _assumptions(entries: Mapping[str, NodeTypeEntry]) -> list[str]:
    """What of offers is assumed rather than known."""
    from foretrain.facts.running import SPOT_INTERRUPTIONS, STARTUP, default

    notes = []
    offered = {name: each for name, each in entries.items() if each.offer is not None}
    started = [name for name, each in offered.items() if each.startup is None]
    if started:
        startup = default(STARTUP)
        notes.append(
            f"start-up of {', '.join(started)}: {startup.quantiles.p50:g} s ({startup.kind.value}); give "
            "`startup` in the cluster file to change it"
        )
    taken = [
        name
        for name, each in offered.items()
        if each.market == Market.SPOT.value and each.interruptions_per_hour is None
    ]
    if taken:
        spot = default(SPOT_INTERRUPTIONS)
        notes.append(
            f"interruptions of {', '.join(taken)}: {spot.quantiles.p50:g} a day ({spot.kind.value}); give "
            "`interruptions_per_hour` in the cluster file to change it"
        )
    return notes


def _caps(written: _Caps) -> Caps:
    return Caps(written.users or {}, *(() if written.month is None else (written.month,)))


def _change(written: _Change, types: Mapping[str, NodeType]) -> PriceChange:
    if written.type not in types:
        raise UnknownName("node type", written.type, types, "It is named in `price_changes`.")
    return PriceChange(written.at, written.type, written.usd_per_hour)
