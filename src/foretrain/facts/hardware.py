"""Hardware as people write it: `h100-sxm`, `h100-sxm:8`, `h100-sxm:8x4`, `aws:p4d.24xlarge:2`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foretrain.errors import InvalidRequest, MissingData
from foretrain.facts.devices import Device, device
from foretrain.facts.nodes import Node, nodes
from foretrain.facts.offers import Offer, offers_named
from foretrain.facts.providers import providers

FORMS = "DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES or PROVIDER:INSTANCE[:NODES]"


@dataclass(frozen=True)
class Hardware:
    """Equal nodes of equal devices; `node` and `offer` where the machine type is known."""

    name: str
    device: Device
    devices_per_node: int
    nodes: int
    node: Node | None = None
    offer: Offer | None = None

    @property
    def devices(self) -> int:
        """All devices."""
        return self.devices_per_node * self.nodes


def hardware(text: str) -> Hardware:
    """The hardware that `text` names; unknown names raise `UnknownName`, other nonsense `InvalidRequest`."""
    provider, _, rest = text.partition(":")
    if rest and provider in providers() and provider not in nodes():
        return _rented(text)
    if text in nodes():
        return _machine(text, nodes()[text], 1)
    name, per_node, count = _counts(text)
    return Hardware(text, device(name), per_node, count)


def _counts(text: str) -> tuple[str, int, int]:
    name, colon, counts = text.rpartition(":")
    if not colon:
        return text, 1, 1
    found = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", counts)
    if not found:
        raise InvalidRequest(f"{text!r} is not hardware: write {FORMS}, e.g. h100-sxm:8x4")
    return name, int(found.group(1)), int(found.group(2) or 1)


def _rented(text: str) -> Hardware:
    """`provider:instance` or `provider:instance:nodes`; instance names may hold colons themselves."""
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
