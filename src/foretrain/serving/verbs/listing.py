"""What is known: devices, offers, links, models, and every fact about a name.

An answer that only gathers nouns of the core is declared here, beside its verb.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, final

from foretrain.answers import Answer
from foretrain.decoding import part
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.facts.options import OfferQuery
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests.listing import (
    AddDeviceRequest,
    AddOffersRequest,
    DevicesRequest,
    ExplainRequest,
    ForgetDeviceRequest,
    ForgetOffersRequest,
    LinksRequest,
    ModelsRequest,
    OffersRequest,
)
from foretrain.serving.verbs.predicting import region_names, topology
from foretrain.units import format_money

if TYPE_CHECKING:
    from foretrain.facts.devices import Device
    from foretrain.facts.explanation import Explanation
    from foretrain.facts.links import Link
    from foretrain.facts.offers import Offer
    from foretrain.facts.own_facts import OwnDevice, OwnOffers
    from foretrain.facts.price_files import ImportReport
    from foretrain.facts.topology import TopologyAnswer
    from foretrain.workloads.zoo.catalogue import ZooEntry


@final
@dataclass(frozen=True)
class DeviceList(Answer):
    """Devices; `is_one` where a device was asked for rather than a selection."""

    devices: tuple[Device, ...]
    is_one: bool = False

    def to_dict(self) -> dict[str, Any] | list[Any]:
        """Each device with all its facts."""
        names = ("id", "name", "kind", "vendor", "family", "generation", "form", "per", "aliases", "is_own")
        rows = [
            {**{name: encode(getattr(each, name)) for name in names}, "facts": each.sheet.to_dict()}
            for each in self.devices
        ]
        return rows[0] if self.is_one else rows

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Ids and names."""
        return tuple((each.id, each.name) for each in self.devices)


def list_devices(request: DevicesRequest, progress: Progress = no_progress) -> DeviceList:
    """What hardware is known: all of it, the variants of a family, or one device in full.

    >>> [device.id for device in ft.list_devices("t4").devices]
    ['t4']
    """
    from foretrain.facts import devices as known

    if request.measure_here:
        from foretrain.measuring.this_machine import measure_this_machine

        return DeviceList((measure_this_machine(progress),), is_one=True)
    if request.name is not None:
        matching = known.matching(request.name)
        return DeviceList(matching, is_one=len(matching) == 1)
    return DeviceList(known.list_devices(request.vendor, request.generation))


def add_device(request: AddDeviceRequest) -> OwnDevice:
    """Check a device `file` of your own and keep it: it is then a device like the others.

    >>> ft.add_device("docs/examples/lab_x1.toml").done
    'added'
    >>> ft.predict("resnet50", on="lab-x1", batch=64).cluster.groups[0].device.is_own
    True
    """
    from foretrain.facts import own_facts

    return own_facts.add_device(request.file)


def forget_device(request: ForgetDeviceRequest) -> OwnDevice:
    """Remove the device of this `name`, which you added.

    >>> ft.add_device("docs/examples/lab_x1.toml").done
    'added'
    >>> ft.forget_device("lab-x1").done
    'forgotten'
    """
    from foretrain.facts import own_facts

    return own_facts.forget_device(request.name)


@final
@dataclass(frozen=True)
class OfferList(Answer):
    """Offers; where there is none, `why` names the conditions that leave none together."""

    offers: tuple[Offer, ...]
    is_spot: bool = False
    why: str = ""

    def to_dict(self) -> list[Any]:
        """Each offer with its price and date."""
        rows: list[Any] = encode(self.offers)
        return rows

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Hourly prices."""
        return tuple(
            (f"{each.provider}:{each.instance}", f"{format_money(each.price(self.is_spot))}/h")
            for each in self.offers
        )


def list_offers(request: OffersRequest) -> OfferList | ImportReport:
    """What machines cost to rent, every price with its date; `refresh` imports newer prices instead.

    >>> len(ft.list_offers(gpu="t4", cloud="aws", limit=3).offers)
    3
    """
    from foretrain.facts.offers import contradiction, search

    if request.refresh is not None:
        from foretrain.facts.price_catalogues import CATALOGUES, import_catalogue
        from foretrain.facts.price_files import import_prices

        if str(request.refresh) in CATALOGUES and not request.refresh.exists():
            return import_catalogue(str(request.refresh), _day(request.as_of))
        return import_prices(request.refresh, _day(request.as_of))
    if request.as_of is not None:
        raise InvalidRequest("`as_of` is the date of `refresh`: give that too")
    query = part(OfferQuery, request, region=region_names(request.region))
    matching = search(query)
    return OfferList(matching, request.spot, "" if matching else contradiction(query))


def add_offers(request: AddOffersRequest) -> OwnOffers:
    """Check a `file` of your own prices and keep them: plans consider them like those of clouds.

    >>> [offer.instance for offer in ft.add_offers("docs/examples/lab_offers.csv").offers]
    ['a100-8', 'h100-8']
    >>> ft.list_offers(cloud="lab").offers[0].usd_per_hour
    9.5
    """
    from foretrain.facts import own_facts

    return own_facts.add_offers(request.file, date.today())


def forget_offers(request: ForgetOffersRequest) -> OwnOffers:
    """Remove the offers of this `name` (a provider, or PROVIDER:INSTANCE), which you added.

    >>> len(ft.add_offers("docs/examples/lab_offers.csv").offers)
    2
    >>> len(ft.forget_offers("lab").offers)
    2
    """
    from foretrain.facts import own_facts

    return own_facts.forget_offers(request.name)


def _day(as_of: str | None) -> date | None:
    try:
        return None if as_of is None else date.fromisoformat(as_of)
    except ValueError:
        raise InvalidRequest(f"`as_of` is {as_of!r}; it must be a date such as 2026-09-30") from None


@final
@dataclass(frozen=True)
class LinkList(Answer):
    """Links and networks."""

    links: tuple[Link, ...]

    def to_dict(self) -> list[Any]:
        """Each link with all its facts."""
        return [
            {
                "id": each.id,
                "name": each.name,
                "kind": encode(each.kind),
                "aliases": encode(each.aliases),
                "facts": each.sheet.to_dict(),
            }
            for each in self.links
        ]

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Ids and names."""
        return tuple((each.id, each.name) for each in self.links)


def list_links(request: LinksRequest) -> LinkList | TopologyAnswer:
    """Links and networks with their rates; with a `topology` file, how the GPUs of that machine are joined.

    >>> {link.kind.value for link in ft.list_links(kind="nvlink").links}
    {'nvlink'}
    """
    from foretrain.facts import links
    from foretrain.facts.devices import device
    from foretrain.facts.topology import explain_topology

    machine = topology(request)
    if machine is not None:
        return explain_topology(machine, None if request.device is None else device(request.device))
    if request.device is not None:
        raise InvalidRequest("`device` is that of the GPUs in a `topology` file; give the file too")
    return LinkList(links.list_links(request.kind))


@final
@dataclass(frozen=True)
class ModelList(Answer):
    """Models of the zoo, and what else can be given as a model: `forms` by how they are written."""

    models: tuple[ZooEntry, ...]
    forms: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Each model with its default sizes."""
        return {
            "models": [_plain_model(each) for each in self.models],
            "forms": [{"form": form, "accepts": what} for form, what in self.forms.items()],
        }

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Names and tasks."""
        return tuple((each.name, each.task) for each in self.models)


def _plain_model(entry: ZooEntry) -> dict[str, Any]:
    sizes = {"batch": entry.batch, "seq_len": entry.seq_len, "image_size": entry.image_size}
    return {
        "name": entry.name,
        "aliases": encode(entry.aliases),
        "family": entry.family,
        "task": entry.task,
        "parameters": entry.parameters,
        "defaults": {size: extent.default for size, extent in sizes.items() if extent is not None},
        "reference": entry.reference,
    }


def list_models(request: ModelsRequest) -> ModelList:
    """The models of the zoo, and what else can be given as a model.

    >>> [model.name for model in ft.list_models(search="mnist").models]
    ['mnist-cnn', 'mnist-resnet18']
    """
    from foretrain.workloads.readers import ACCEPTED
    from foretrain.workloads.zoo import catalogue

    return ModelList(catalogue.list_models(request.search), ACCEPTED)


def explain(request: ExplainRequest) -> Explanation:
    """Every fact about a name (a device, link, node, provider, offer, source), with its kind and source.

    >>> ft.explain("nvlink4").kind
    'link'
    """
    from foretrain.facts import explanation

    return explanation.explain(request.name)
