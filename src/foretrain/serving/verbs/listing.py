"""What is known: offers, and how the GPUs of a machine are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest
from foretrain.serving.requests import LinksRequest, OffersRequest
from foretrain.serving.verbs.predicting import region_names, topology

if TYPE_CHECKING:
    from foretrain.facts.offers import Offer, OfferQuery
    from foretrain.facts.topology import TopologyAnswer


def offers(request: OffersRequest) -> tuple[Offer, ...]:
    """What machines cost to rent."""
    from foretrain.facts.offers import search

    return search(_offer_query(request))


def contradicting_filters(request: OffersRequest) -> str:
    """Which filters of a request leave no offer together."""
    from foretrain.facts.offers import contradiction

    return contradiction(_offer_query(request))


def explain_topology(request: LinksRequest) -> TopologyAnswer | None:
    """The tiers of the topology file of a request; None without one."""
    from foretrain.facts import topology as core
    from foretrain.facts.devices import device

    machine = topology(request)
    if machine is None:
        if request.device is not None:
            raise InvalidRequest("`device` is that of the GPUs in a `topology` file; give the file too")
        return None
    return core.explain_topology(machine, None if request.device is None else device(request.device))


def _offer_query(request: OffersRequest) -> OfferQuery:
    from foretrain.facts.offers import OfferQuery

    return OfferQuery(
        gpu=request.gpu,
        count=request.count,
        clouds=request.cloud,
        regions=region_names(request.region),
        spot=request.spot,
        historical=request.historical,
        max_usd_per_hour=request.max_price,
        sort=request.sort,
        limit=request.limit,
        cheapest_region=not request.all_regions,
    )
