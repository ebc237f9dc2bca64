"""What a job costs: the price of its machines, by the billing terms of whoever rents them out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.estimates import Quantiles
from foretrain.facts.billing import UNKNOWN_TERMS, BillingTerms, billed_usd
from foretrain.facts.hardware import Hardware
from foretrain.facts.offers import Offer, offers_named
from foretrain.facts.providers import providers
from foretrain.registry import normalised


@dataclass(frozen=True, slots=True)
class Price:
    """What the machines of a job cost an hour, each of `machines`, and how time is counted.

    `more` are the prices of machines unlike these that the job takes too.
    """

    usd_per_machine_hour: float
    machines: int
    terms: BillingTerms
    spot: bool
    source: str
    offer: Offer | None = None
    more: tuple[Price, ...] = ()

    @property
    def each(self) -> tuple[Price, ...]:
        """This one, and those of the other machines."""
        return (self, *self.more)

    def usd(self, seconds: float) -> float:
        """The bill for so many seconds of all machines."""
        own = self.machines * billed_usd(seconds, self.usd_per_machine_hour, self.terms)
        return own + sum(price.usd(seconds) for price in self.more)

    def bill(self, seconds: Quantiles) -> Quantiles:
        """The bill at each percentile of the time."""
        return Quantiles(self.usd(seconds.p10), self.usd(seconds.p50), self.usd(seconds.p90))


def price_of(hardware: Hardware, spot: bool, usd_per_hour: float | None, region: str | None) -> Price | None:
    """What the hardware costs: as given (all machines together), by its offer, or None if nobody says."""
    if usd_per_hour is not None:
        if not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
            raise InvalidRequest(f"{usd_per_hour} USD an hour: give a finite price of at least 0")
        return Price(usd_per_hour, 1, UNKNOWN_TERMS, spot, "price as given")
    if hardware.offer is None:
        return None
    offer = offer_in(hardware.offer, spot, region)
    kind = "spot" if spot else "on demand"
    where = f" in {offer.place}" if offer.place else ""
    return Price(
        offer.price(spot),
        hardware.nodes,
        providers()[offer.provider].billing_terms(offer.instance, offer.historical),
        spot,
        f"{offer.provider}:{offer.instance}{where}, {kind}, as of {offer.as_of}",
        offer,
    )


def price_of_all(
    groups: Sequence[Hardware], spot: bool, usd_per_hour: float | None, region: str | None
) -> Price | None:
    """What groups of machines cost together; None if nobody says it of one of them."""
    if usd_per_hour is not None:
        return price_of(groups[0], spot, usd_per_hour, region)
    found = [price_of(group, spot, None, region) for group in groups]
    known = [price for price in found if price is not None]
    return replace(known[0], more=tuple(known[1:])) if len(known) == len(found) else None


def offer_in(offer: Offer, spot: bool, region: str | None) -> Offer:
    """The same machine where it is cheapest, or in the region asked for."""
    listed = offers_named(f"{offer.provider}:{offer.instance}")
    if region is not None:
        known = [one.region for one in listed]
        listed = tuple(one for one in listed if normalised(one.region) == normalised(region))
        if not listed:
            raise UnknownName(f"region of {offer.provider}:{offer.instance}", region, known)
    if spot:
        priced = [one for one in listed if one.spot_usd_per_hour is not None]
        if not priced:
            raise InvalidRequest(
                f"no spot price of {offer.provider}:{offer.instance} is known; leave --spot out, or give the "
                "price as --usd-per-hour"
            )
        return min(priced, key=lambda one: (one.price(spot=True), one.region))
    return listed[0]
