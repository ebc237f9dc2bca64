"""Enumerate: the machines that could run a job, every offer of the request as one node and as several.

Several nodes are considered only where the network between them is known, from facts of the machine type or
because the request names one. Machines with the same devices and the same links take the same time at every
provider: they share a `Shape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from foretrain.decoding import part
from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.facts.hardware import Hardware, nodes
from foretrain.facts.offers import Offer, contradiction, search
from foretrain.facts.options import OfferQuery
from foretrain.facts.topology import Topology, links_among
from foretrain.planning.frontier import Exclusion
from foretrain.planning.options import MachineOptions

_EXAMPLES = 3
_SINGLE = "considered as single nodes only: inter-node network unknown (give `network`)"


@dataclass(frozen=True, slots=True)
class Shape:
    """Devices and the links between them: all of the hardware that the time of a job depends on."""

    device: str
    devices_per_node: int
    nodes: int
    node: str | None

    @property
    def devices(self) -> int:
        """All devices."""
        return self.devices_per_node * self.nodes


@dataclass(frozen=True)
class Machines:
    """One or several machines of an offer."""

    offer: Offer
    hardware: Hardware
    shape: Shape


@dataclass(frozen=True, slots=True)
class Excluded:
    """A machine type that is not planned, why, and the least memory it lacks where that is the reason."""

    machine: str
    reason: str
    needed_bytes: float | None = None
    capacity_bytes: float | None = None


@dataclass(frozen=True, kw_only=True)
class MachinesRequest(MachineOptions):
    """Which machines to consider, at their spot price or not.

    `topology` replaces the links inside nodes of as many devices as it has, or fewer. Machines that it cannot
    describe are excluded.
    """

    spot: bool = False
    topology: Topology | None = None

    def __post_init__(self) -> None:
        if self.max_gpus < 1:
            raise InvalidRequest(f"`max_gpus` must be at least 1, got {self.max_gpus}")

    @property
    def gpus_allowed(self) -> str:
        """`64 GPUs`."""
        return f"{self.max_gpus:,} GPU{'' if self.max_gpus == 1 else 's'}"

    @property
    def described(self) -> str:
        """The filter in words: ` of h100 by aws or gcp with a spot price`."""
        regions = tuple(each.strip(" ,") for each in self.region)
        filters = (("of", self.gpu), ("by", self.cloud), ("in", regions))
        text = "".join(f" {word} {' or '.join(names)}" for word, names in filters if names)
        return f"{text} with a spot price" if self.spot else text


def enumerate_machines(request: MachinesRequest) -> tuple[tuple[Machines, ...], tuple[Excluded, ...]]:
    """All machines to compare, each where it is cheapest, and the machine types that are excluded.

    An unknown name raises `UnknownName`.
    """
    machines: list[Machines] = []
    excluded: list[Excluded] = []
    for offer in _offers(request):
        if offer.device is None:
            excluded.append(Excluded(_name(offer), f"{offer.family.upper()} variant not specified"))
        elif offer.count > request.max_gpus:
            excluded.append(Excluded(_name(offer), f"more than {request.gpus_allowed}"))
        elif contradiction_with_topology(offer, request.topology):
            excluded.append(Excluded(_name(offer), contradiction_with_topology(offer, request.topology)))
        else:
            several = _nodes_of(offer, request)
            machines += several
            if len(several) == 1 and 2 * offer.count <= request.max_gpus:
                excluded.append(Excluded(_name(offer), _SINGLE))
    return tuple(machines), tuple(excluded)


def contradiction_with_topology(offer: Offer, topology: Topology | None) -> str:
    """Why a topology cannot be that of a machine; empty where it can."""
    if topology is None or offer.count == 1:
        return ""
    assert offer.device is not None
    try:
        links_among(topology, device(offer.device), offer.count)
    except InvalidRequest as reason:
        return str(reason)
    return ""


def exclusions(excluded: Iterable[Excluded]) -> tuple[Exclusion, ...]:
    """The exclusions by reason, the most frequent first, each machine type counted once."""
    by_reason: dict[str, dict[str, None]] = {}
    for each in excluded:
        by_reason.setdefault(each.reason, {})[each.machine] = None
    summaries = (
        Exclusion(reason, len(names), tuple(list(names)[:_EXAMPLES]), is_partly=reason == _SINGLE)
        for reason, names in by_reason.items()
    )
    return tuple(sorted(summaries, key=lambda each: (-each.count, each.reason)))


def contradicting_filters(request: MachinesRequest) -> str:
    """Which filters of the request leave no offer together; nothing if some offer passes."""
    return contradiction(part(OfferQuery, request, gpu=None), request.gpu)


def _offers(request: MachinesRequest) -> Sequence[Offer]:
    """The offers of the request; those of several GPUs are the union of each one's."""
    gpus: Iterable[str | None] = request.gpu or (None,)
    offers: dict[tuple[str, str], Offer] = {}
    for gpu in gpus:
        query = part(OfferQuery, request, gpu=gpu)
        offers |= {(offer.provider, offer.instance): offer for offer in search(query)}
    return list(offers.values())


def _nodes_of(offer: Offer, request: MachinesRequest) -> list[Machines]:
    """1, 2, 4, 8 ... machines of an offer; one where the network between them is unknown."""
    assert offer.device is not None
    name = _name(offer)
    node = nodes().find(name)
    links = request.links
    if request.topology is not None and offer.count > 1:
        links = links_among(request.topology, device(offer.device), offer.count)
    one = Hardware(name, device(offer.device), offer.count, 1, node, offer, links, request.network)
    is_joined = request.network is not None or (node is not None and node.inter is not None)
    most = request.max_gpus // offer.count if is_joined else 1
    known = None if node is None else node.id
    return [
        Machines(
            offer,
            one if count == 1 else replace(one, name=f"{name}:{count}", nodes=count),
            Shape(offer.device, offer.count, count, known),
        )
        for count in (1 << power for power in range(most.bit_length()))
    ]


def _name(offer: Offer) -> str:
    return f"{offer.provider}:{offer.instance}"
