"""Every fact foretrain would use of a name, with its kind and source."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import UnknownName
from foretrain.facts.datasets import datasets, storages
from foretrain.facts.devices import devices, family, refuse_unmodelled
from foretrain.facts.hardware import nodes
from foretrain.facts.links import links, topologies
from foretrain.facts.offers import Offer, offers_named
from foretrain.facts.providers import BillingRule, providers
from foretrain.facts.sheets import Fact, FactKind, Sheet, Source, quantities, source_named, sources
from foretrain.registry import Registry


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact made readable: what it says, in which unit, how it is known."""

    subject: str
    quantity: str
    value: float | int | str
    unit: str
    meaning: str
    kind: str
    source: str
    preferred: bool
    note: str


@final
@dataclass(frozen=True)
class Explanation(Answer):
    """All statements about one name, and the sources they cite."""

    name: str
    kind: str
    title: str
    statements: tuple[Statement, ...]
    sources: tuple[Source, ...]

    def to_dict(self) -> dict[str, Any]:
        """Every statement and source in full."""
        plain: dict[str, Any] = encode(self)
        return plain

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What the name is, and the preferred value of each quantity."""
        values = ((each.quantity, str(each.value)) for each in self.statements if each.preferred)
        return ((self.name, self.title), *values)


def explain(name: str) -> Explanation:
    """What is known of a device (or family), link, topology, node, provider, offer `provider:instance`, data
    set, storage or source."""
    looks = (
        _device, _family, _named(links), _topology, _offer, _named(nodes), _provider, _named(datasets),
        _named(storages), _source,
    )  # fmt: skip
    for look in looks:
        explanation = look(name)
        if explanation is not None:
            return explanation
    refuse_unmodelled(name)
    known = [
        *devices(),
        *links(),
        *topologies(),
        *nodes(),
        *providers(),
        *datasets(),
        *storages(),
        *sources(),
    ]
    hint = "Explain a device, link, topology, node, provider, data set, storage, source or PROVIDER:INSTANCE"
    raise UnknownName("fact sheet", name, known, hint)


def _explanation(name: str, kind: str, title: str, sheets: list[Sheet]) -> Explanation:
    statements = tuple(_statement(sheet.subject, fact) for sheet in sheets for fact in sheet)
    cited = tuple(dict.fromkeys(statement.source for statement in statements))
    return Explanation(name, kind, title, statements, tuple(map(source_named, cited)))


def _statement(subject: str, fact: Fact) -> Statement:
    quantity = quantities().get(fact.quantity)
    return Statement(
        subject=subject,
        quantity=fact.quantity,
        value=fact.value,
        unit=quantity.unit if quantity else "",
        meaning=quantity.meaning if quantity else "",
        kind=fact.kind.value,
        source=fact.source,
        preferred=fact.preferred,
        note=fact.note,
    )


def _named(registry: Callable[[], Registry[Any]]) -> Callable[[str], Explanation | None]:
    """How to explain what a registry of plain things has; each is read when its turn comes."""

    def look(name: str) -> Explanation | None:
        known = registry().find(name)
        kind = registry().kind
        return None if known is None else _explanation(known.id, kind, known.name, [known.sheet])

    return look


def _device(name: str) -> Explanation | None:
    if name not in devices():
        return None
    device = devices()[name]
    title = f"{device.name} ({device.generation}, one device = one {device.per})"
    return _explanation(device.id, "device", title, [device.sheet])


def _family(name: str) -> Explanation | None:
    variants = family(name)
    if not variants:
        return None
    title = f"a family of {len(variants)} devices: {', '.join(variant.id for variant in variants)}"
    return _explanation(name, "device family", title, [variant.sheet for variant in variants])


def _topology(name: str) -> Explanation | None:
    if name not in topologies():
        return None
    topology = topologies()[name]
    title = f"PCI Express {topology.name}; sharing exponent {topology.sharing_exponent:.3g}, the mean"
    return _explanation(topology.id, "topology", title, [topology.sheet])


def _provider(name: str) -> Explanation | None:
    if name not in providers():
        return None
    provider = providers()[name]
    billing = [
        Fact(quantity, value, rule.terms.kind, rule.terms.source, note=_applies_to(rule))
        for rule in provider.billing_rules
        for quantity, value in (
            ("granularity_seconds", rule.terms.granularity_seconds),
            ("minimum_seconds", rule.terms.minimum_seconds),
            ("egress_usd_per_gb", rule.terms.egress_usd_per_gb),
        )
        if value is not None
    ]
    prices = [
        Fact("prices_as_of", file.as_of, FactKind(file.as_of_kind), file.source, note=file.note or file.file)
        for file in provider.offer_files
    ]
    return _explanation(provider.id, "provider", provider.name, [Sheet(provider.id, (*billing, *prices))])


def _applies_to(rule: BillingRule) -> str:
    instances = "all instances" if rule.instances == "*" else f"instances {rule.instances}"
    return f"{instances}, historical" if rule.historical else instances


def _offer(name: str) -> Explanation | None:
    provider, separator, _ = name.partition(":")
    if not separator or provider not in providers():
        return None
    offers = offers_named(name)
    first = offers[0]
    title = f"{first.count} x {first.device or first.family} at {providers()[provider].name}"
    machine = [nodes()[name].sheet] if name in nodes() else []
    prices = [_offer_sheet(offer) for offer in offers]
    return _explanation(f"{first.provider}:{first.instance}", "offer", title, [*prices, *machine])


def _offer_sheet(offer: Offer) -> Sheet:
    note = f"as of {offer.as_of}"
    prices = [Fact("usd_per_hour", offer.usd_per_hour, FactKind.SPEC, offer.source, note=note)]
    if offer.spot_usd_per_hour is not None:
        spot = Fact("spot_usd_per_hour", offer.spot_usd_per_hour, FactKind.SPEC, offer.source, note=note)
        prices.append(spot)
    return Sheet(f"{offer.instance} in {offer.region}", tuple(prices))


def _source(name: str) -> Explanation | None:
    if name not in sources():
        return None
    source = sources()[name]
    return Explanation(source.id, "source", source.title, (), (source,))
