"""What is known: offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrain.serving.requests import OffersRequest
from foretrain.serving.verbs.predicting import region_names

if TYPE_CHECKING:
    from foretrain.facts.offers import Offer, OfferQuery


def offers(request: OffersRequest) -> tuple[Offer, ...]:
    """What machines cost to rent."""
    from foretrain.facts.offers import search

    return search(_offer_query(request))


def contradicting_filters(request: OffersRequest) -> str:
    """Which filters of a request leave no offer together."""
    from foretrain.facts.offers import contradiction

    return contradiction(_offer_query(request))


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
