"""What is known: devices, offers, links, models, and every fact about a name with its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrain import units
from foretrain.serving.views.blocks import Block, Break, Column, Heading, Page, Sentence, Table, Tone
from foretrain.serving.views.wording import as_flags, sentence
from foretrain.units import format_bandwidth, format_bytes, format_duration, format_flop, format_money

if TYPE_CHECKING:
    from foretrain.facts.devices import Device
    from foretrain.facts.explanation import Explanation, Statement
    from foretrain.facts.links import Link
    from foretrain.facts.offers import Offer
    from foretrain.facts.own_facts import OwnDevice, OwnOffers
    from foretrain.facts.price_files import ImportReport
    from foretrain.facts.topology import TopologyAnswer
    from foretrain.serving.verbs.listing import DeviceList, LinkList, ModelList, OfferList
    from foretrain.workloads.zoo.catalogue import ZooEntry

_NOMINAL = "nominal_bytes_per_second_per_direction"
_ACHIEVABLE = "achievable_bytes_per_second_per_direction"


def devices_page(answer: DeviceList) -> Page:
    """Devices in a table, or one in full."""
    if len(answer.devices) == 1:
        return Page.of(answer.devices[0].id, _device(answer.devices[0]))
    return Page.of("Devices", _devices(answer.devices))


def offers_page(answer: OfferList) -> Page:
    """What machines cost to rent, on demand or as spot instances."""
    if not answer.offers:
        return Page.of("Offers", [Sentence(sentence(as_flags(answer.why)))])
    return Page.of("Offers", _offers(answer.offers, answer.is_spot))


def own_device_page(answer: OwnDevice) -> Page:
    """What was done with a device of the user's own."""
    device = answer.device
    if answer.done == "forgotten":
        return Page.of(device.id, [Sentence(f"{device.id} ({device.name}) is forgotten")])
    lines = (
        f"{device.id} ({device.name}) is {answer.done}, in {answer.file}",
        f"Use it like any device: foretrain predict MODEL --on {device.id}",
    )
    return Page.of(device.id, map(Sentence, lines))


def own_offers_page(answer: OwnOffers) -> Page:
    """What was done with offers of the user's own."""
    return Page.of("Your offers", _own_offers(answer))


def price_import_page(report: ImportReport) -> Page:
    """What was taken from a price file, and what was not."""
    return Page.of(f"Prices of {report.as_of}", _price_import(report))


def links_page(answer: LinkList) -> Page:
    """Links and networks with their rates."""
    return Page.of("Links", _links(answer.links))


def topology_page(answer: TopologyAnswer) -> Page:
    """Which GPUs of a machine are joined by what."""
    return Page.of("Topology", _topology(answer))


def models_page(answer: ModelList) -> Page:
    """The zoo, and what else is a model."""
    others = dict(list(answer.forms.items())[1:])  # the first form is the zoo itself
    return Page.of("Models", _models(answer.models, others))


def explain_page(answer: Explanation) -> Page:
    """Every fact about a name, and the sources of all."""
    return Page.of(answer.name, _explain(answer))


def _devices(devices: Sequence[Device]) -> Iterator[Block]:
    def number(device: Device, quantity: str, form: Any) -> str:
        return form(device.sheet.number(quantity)) if device.sheet.has(quantity) else "-"

    def rate(flop_per_second: float) -> str:
        return format_flop(flop_per_second, "FLOP/s").removesuffix("FLOP/s")

    rows = [
        (
            f"{device.id} (yours)" if device.is_own else device.id,
            device.generation,
            number(device, "release_year", lambda year: f"{year:.0f}"),
            number(device, "fp32_flop_per_second", rate),
            number(device, "fp16_tensor_flop_per_second", rate),
            number(device, "memory_bytes", format_bytes),
            number(device, "memory_bytes_per_second", format_bandwidth),
            number(device, "tdp_watts", lambda watts: f"{watts:.0f} W"),
        )
        for device in devices
    ]
    titles = ("FP32", "tensor", "memory", "bandwidth", "TDP")
    columns = [
        Column("device", tone=Tone.NAME),
        Column("generation", expendable=1),
        Column("year", right=True, expendable=2),
        *(Column(title, right=True) for title in titles),
    ]
    yield Table(columns, rows)
    yield Sentence(f"{len(devices)} devices. FP32 and FP16 tensor peaks are dense FLOP/s of one device.")
    yield Sentence("Where a figure comes from: foretrain explain DEVICE")


def _device(device: Device) -> Iterator[Block]:
    yield Heading(f"{device.id}: {device.name}")
    yield Sentence(
        f"{device.vendor} {device.generation}, one device = one {device.per}, family {device.family}"
    )
    if device.is_own:
        yield Sentence(f"yours; forget it: foretrain devices forget {device.id}")
    if device.aliases:
        yield Sentence(f"also called {', '.join(device.aliases)}")
    yield Break()
    rows = [
        (fact.quantity, _fact(fact.quantity, fact.value), fact.kind.value, fact.source)
        for fact in device.sheet
        if fact.preferred
    ]
    columns = [
        Column("quantity"),
        Column("value", right=True),
        Column("kind"),
        Column("source", expendable=1),
    ]
    yield Table(columns, rows)
    yield Sentence(f"Titles and links of the sources: foretrain explain {device.id}")


def _fact(quantity: str, value: float | str) -> str:
    """A fact's value in the units people use."""
    from foretrain.facts.sheets import quantities

    known = quantities().get(quantity)
    if isinstance(value, str) or known is None:
        return str(value)
    forms: dict[str, Callable[[float], str]] = {
        "FLOP/s": lambda number: units.format_flop(number, "FLOP/s"),
        "B": units.format_bytes,
        "B/s": units.format_bandwidth,
        "s": units.format_duration,
        "USD": units.format_money,
        "W": lambda number: f"{number:g} W",
        "Hz": lambda number: f"{number / 1e6:,.0f} MHz",
    }
    form = forms.get(known.unit)
    return form(value) if form else f"{value:g}"


def _offers(offers: Sequence[Offer], spot: bool) -> Iterator[Block]:
    shown = [
        (Column("cloud", tone=Tone.NAME), [_provider(offer) for offer in offers]),
        (Column("instance", least=20), [offer.instance or "-" for offer in offers]),
        (Column("devices"), [f"{offer.count} x {offer.device or offer.family + '?'}" for offer in offers]),
        (
            Column("vCPU", right=True, expendable=3),
            [_or_dash(offer.vcpus, "{:g}".format) for offer in offers],
        ),
        (
            Column("memory", right=True, expendable=4),
            [_or_dash(offer.memory_bytes, format_bytes) for offer in offers],
        ),
        (
            Column("spot $/h" if spot else "$/h", right=True),
            [format_money(offer.price(spot)) for offer in offers],
        ),
        (Column("each", right=True), [format_money(offer.price(spot) / offer.count) for offer in offers]),
        (Column("region", least=15, expendable=1), [offer.region for offer in offers]),
        (Column("as of"), [offer.as_of for offer in offers]),
    ]
    if not spot:
        spots = [_or_dash(offer.spot_usd_per_hour, format_money) for offer in offers]
        shown.insert(7, (Column("spot $/h", right=True, expendable=2), spots))
    yield Table([column for column, _ in shown], list(zip(*(cells for _, cells in shown), strict=True)))
    clouds = len({offer.provider for offer in offers})
    of = "1 provider" if clouds == 1 else f"{clouds} providers"
    yield Sentence(f"{len(offers)} offers of {of}. Prices are of the date shown; each = per device.")
    if any(offer.device is None for offer in offers):
        yield Sentence("? = the provider does not say which variant of the family.")
    yield Sentence("Where a price comes from: foretrain explain CLOUD:INSTANCE")


def _provider(offer: Offer) -> str:
    from foretrain.facts.offers import OWN_SOURCE

    return f"{offer.provider} (yours)" if offer.source == OWN_SOURCE else offer.provider


def _own_offers(answer: OwnOffers) -> Iterator[Block]:
    count = "1 offer" if len(answer.offers) == 1 else f"{len(answer.offers)} offers"
    dates = sorted({offer.as_of for offer in answer.offers})
    known = f", {answer.replaced} in place of known ones" if answer.replaced else ""
    span = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    yield Heading(f"{count} {answer.done}{known}, prices as of {span}")
    yield Table(
        [Column("machine", tone=Tone.NAME), Column("devices"), Column("$/h", right=True), Column("region")],
        [
            (
                f"{offer.provider}:{offer.instance}",
                f"{offer.count} x {offer.device}",
                format_money(offer.usd_per_hour),
                offer.place,
            )
            for offer in answer.offers
        ],
    )
    for unusual in answer.unusual:
        yield Sentence(f"Kept, though far from the market: {unusual}")


def _or_dash(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def _price_import(report: ImportReport) -> Iterator[Block]:
    taken = sum(number for _, number in report.offers_by_cloud)
    yield Heading(f"Imported {taken} offers of {report.as_of} from {report.rows} rows of {report.file}")
    yield Table(
        [Column("cloud"), Column("offers", right=True)],
        [(cloud, str(number)) for cloud, number in report.offers_by_cloud],
    )
    change = report.changes
    yield Sentence(
        f"Against the prices known before: {change.changed} changed, {change.new} new, "
        f"{change.gone} no longer listed, {change.same} the same"
    )
    for complaint in report.complaints:
        yield Sentence(f"{report.file}: {complaint}")
    if report.older:
        yield Sentence(f"Not taken, older than what is known: {', '.join(report.older)}")
    if report.outliers:
        yield Sentence(
            f"Dropped {len(report.outliers)} prices far from the market (see the rule in the docs)"
        )
    if report.spot_prices_dropped:
        yield Sentence(f"Dropped {report.spot_prices_dropped} spot prices above the on-demand price")
    for skipped in report.skipped:
        yield Sentence(
            f"Skipped {skipped.rows} rows of {skipped.cloud} {skipped.accelerator!r}: {skipped.reason}"
        )


def _links(links: Sequence[Link]) -> Iterator[Block]:
    rows = []
    for link in links:
        nominal, reached, latency = map(link.sheet.fact, (_NOMINAL, _ACHIEVABLE, "latency_seconds"))
        rows.append(
            (
                link.id,
                link.kind,
                "-" if nominal is None else format_bandwidth(float(nominal.value)),
                "-" if reached is None else format_bandwidth(float(reached.value)),
                "-" if latency is None else format_duration(float(latency.value)),
                "-" if reached is None else f"{reached.source} ({reached.kind.value})",
            )
        )
    columns = [
        Column("link", tone=Tone.NAME),
        Column("kind"),
        Column("nominal", right=True),
        Column("reached", right=True),
        Column("latency", right=True),
        Column("source of the rate reached", expendable=1),
    ]
    yield Table(columns, rows)
    yield Sentence(
        f"{len(links)} links. Rates are of one direction; an nvlink is one link, an nvswitch all of a device."
    )
    yield Sentence("Where a figure comes from: foretrain explain LINK")


def _topology(answer: TopologyAnswer) -> Iterator[Block]:
    rows = [
        (tier.path, tier.meaning, "; ".join(" ".join(group) for group in tier.groups))
        for tier in answer.tiers
    ]
    yield Table([Column("path", tone=Tone.NAME), Column("over"), Column("joins")], rows)
    cards = f", {len(answer.nics)} network cards" if answer.nics else ""
    yield Sentence(f"{len(answer.gpus)} GPUs{cards} in {answer.file}, from the best path to the worst.")
    if answer.nearest_nics:
        nearest = ", ".join(f"{gpu} {nic}" for gpu, nic in answer.nearest_nics.items())
        yield Sentence(f"Nearest network card: {nearest}")
    if answer.links is not None:
        yield Sentence(f"Predictions on {answer.device}:{len(answer.gpus)} use --links {answer.links}")
    elif answer.device is None:
        yield Sentence("With --device DEVICE: the links that predictions use.")


def _models(entries: Sequence[ZooEntry], forms: Mapping[str, str]) -> Iterator[Block]:
    rows = [
        (
            entry.name,
            "-" if entry.parameters is None else f"{entry.parameters:,}",
            entry.task.replace("-", " "),
            _input(entry),
        )
        for entry in entries
    ]
    columns = [
        Column("model", tone=Tone.NAME),
        Column("parameters", right=True),
        Column("task"),
        Column("default input"),
    ]
    yield Table(columns, rows)
    yield Sentence(
        f"{len(entries)} models of the zoo. Parameters as published; - where no count was published."
    )
    yield Break()
    yield Table([Column("also a model", tone=Tone.NAME), Column("what it is")], list(forms.items()))


def _input(entry: ZooEntry) -> str:
    if entry.seq_len is not None:
        return f"{entry.seq_len.default:,} tokens"
    if entry.image_size is not None:
        return f"{entry.image_size.default} x {entry.image_size.default} pixels"
    return "-"


def _explain(answer: Explanation) -> Iterator[Block]:
    yield Heading(f"{answer.name}: {answer.title}")
    if answer.statements:
        yield Break()
        yield _statements(answer)
    yield Break()
    yield Sentence("Sources:")
    for source in answer.sources:
        yield Sentence(f"{source.id}: {source.title}", indent=1)
        yield Sentence(f"{source.locator} (retrieved {source.retrieved}; {source.licence})", indent=2)


def _statements(answer: Explanation) -> Table:
    """A row for each fact; of whom it is only where there are several."""
    columns = [
        Column("of", least=16), Column("quantity", least=24), Column("value", right=True),
        Column("kind", expendable=1), Column("source", least=16), Column("note", least=20, expendable=2),
    ]  # fmt: skip
    rows = [(fact.subject, *_cells(fact), fact.kind, fact.source, fact.note) for fact in answer.statements]
    if len({fact.subject for fact in answer.statements}) == 1:
        columns, rows = columns[1:], [row[1:] for row in rows]
    return Table(columns, rows)


def _cells(fact: Statement) -> tuple[str, ...]:
    name = fact.quantity + ("" if fact.preferred else " (not preferred)")
    return name, _fact(fact.quantity, fact.value)
