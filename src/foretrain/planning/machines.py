"""Which machines could run a job: every offer asked for, alone and several together.

Several machines are considered together only where the network between them is known, from facts of the
machine type or because the user names one. Machines of the same devices, joined in the same way, take the
same time whoever rents them out: they share a `Shape`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.facts.hardware import Hardware
from foretrain.facts.nodes import nodes
from foretrain.facts.offers import Offer, OfferQuery, search
from foretrain.planning.frontier import LeftOut

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """Devices and how they are joined: all that a job's time depends on."""

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
    """So many machines of an offer."""

    offer: Offer
    hardware: Hardware
    shape: Shape


@dataclass(frozen=True, slots=True)
class MachinesRequest:
    """Which machines to consider, with at most so many devices.

    `links` and `network` are named in place of what facts know of how they are joined.
    """

    gpus: tuple[str, ...] = ()
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    spot: bool = False
    most_devices: int = 64
    links: str | None = None
    network: str | None = None

    def __post_init__(self) -> None:
        if self.most_devices < 1:
            raise InvalidRequest(f"at most {self.most_devices} GPUs: give at least 1")

    @property
    def gpus_allowed(self) -> str:
        """`64 GPUs`."""
        return f"{self.most_devices:,} GPU{'' if self.most_devices == 1 else 's'}"

    @property
    def wanted(self) -> str:
        """Which offers those are: ` of h100 by aws or gcp with a spot price`."""
        regions = tuple(each.strip(" ,") for each in self.regions)
        asked = (("of", self.gpus), ("by", self.clouds), ("in", regions))
        said = "".join(f" {word} {' or '.join(names)}" for word, names in asked if names)
        return f"{said} with a spot price" if self.spot else said


class Reasons:
    """Why offers were left out, gathered on the way."""

    def __init__(self) -> None:
        self._names: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, reason: str, name: str) -> None:
        """One more machine type that was left out."""
        self._names[reason][name] += 1

    def copy(self) -> Reasons:
        """Those so far, to go on from."""
        same = Reasons()
        same._names |= {reason: Counter(names) for reason, names in self._names.items()}
        return same

    def told(self) -> tuple[LeftOut, ...]:
        """All of them, the most frequent reason first."""
        found = (
            LeftOut(reason, len(names), tuple(list(names)[:_EXAMPLES]))
            for reason, names in self._names.items()
        )
        return tuple(sorted(found, key=lambda each: (-each.count, each.reason)))


def machines(request: MachinesRequest, reasons: Reasons) -> tuple[Machines, ...]:
    """All machines to compare, each where it is cheapest; an unknown name raises `UnknownName`."""
    found: list[Machines] = []
    for offer in _offers(request):
        if offer.device is None:
            reasons.add(f"it is not said which {offer.family} they have", _name(offer))
        elif offer.count > request.most_devices:
            reasons.add(f"they have more than {request.gpus_allowed}", _name(offer))
        else:
            found += _of_offer(offer, request, reasons)
    return tuple(found)


def _offers(request: MachinesRequest) -> Sequence[Offer]:
    """The offers asked for; those of several GPUs are the union of each one's."""
    gpus: Iterable[str | None] = request.gpus or (None,)
    found: dict[tuple[str, str], Offer] = {}
    for gpu in gpus:
        query = OfferQuery(
            gpu=gpu,
            clouds=request.clouds,
            regions=request.regions,
            spot=request.spot,
            cheapest_region=True,
        )
        found |= {(offer.provider, offer.instance): offer for offer in search(query)}
    return list(found.values())


def _of_offer(offer: Offer, request: MachinesRequest, reasons: Reasons) -> Iterator[Machines]:
    assert offer.device is not None
    name = _name(offer)
    node = nodes().find(name)
    one = Hardware(name, device(offer.device), offer.count, 1, node, offer, request.links, request.network)
    counts = _counts(request.most_devices // offer.count)
    if len(counts) > 1 and request.network is None and (node is None or node.inter is None):
        reasons.add("several of them together, as their network is not known (--network names one)", name)
        counts = [1]
    for count in counts:
        hardware = one if count == 1 else replace(one, name=f"{name}:{count}", nodes=count)
        known = None if node is None else node.id
        yield Machines(offer, hardware, Shape(offer.device, offer.count, count, known))


def _counts(most: int) -> list[int]:
    """1, 2, 4, 8 ... machines."""
    return [1 << power for power in range(most.bit_length())] if most else []


def _name(offer: Offer) -> str:
    return f"{offer.provider}:{offer.instance}"
