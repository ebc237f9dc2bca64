"""What a job costs: the price of its machines, by the billing terms of their provider."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest, UnknownName
from foretrain.estimates import Quantiles
from foretrain.facts.billing import ROUNDING_DIGITS, UNKNOWN_TERMS, BillingTerms, billed_usd
from foretrain.facts.hardware import Hardware
from foretrain.facts.offers import Offer, offers_named
from foretrain.facts.providers import providers
from foretrain.registry import normalised

ROUNDING_SLACK = 1e-6
"""Billing units are counted to a millionth (`facts.billing`), so a bill may fall short by half of one."""


@dataclass(frozen=True, slots=True)
class Price:
    """The hourly price of each of `machines` equal machines, and the terms by which time is billed.

    `more` are the prices of the other groups of a heterogeneous cluster.
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
        """The prices of all groups."""
        return (self, *self.more)

    def usd(self, seconds: float) -> float:
        """The bill for `seconds` of all machines."""
        own = self.machines * billed_usd(seconds, self.usd_per_machine_hour, self.terms)
        return own + sum(price.usd(seconds) for price in self.more)

    def bill(self, seconds: Quantiles) -> Quantiles:
        """The bill at each percentile of the time."""
        return Quantiles(self.usd(seconds.p10), self.usd(seconds.p50), self.usd(seconds.p90))


def price_of(hardware: Hardware, spot: bool, usd_per_hour: float | None, region: str | None) -> Price | None:
    """The price of hardware: as given (all machines together), by its offer, or None if unknown."""
    if usd_per_hour is not None:
        if not (math.isfinite(usd_per_hour) and usd_per_hour >= 0):
            raise InvalidRequest(f"`usd_per_hour` must be finite and at least 0, got {usd_per_hour}")
        return Price(usd_per_hour, 1, UNKNOWN_TERMS, spot, "price as given")
    if hardware.offer is None:
        return None
    return price_of_offer(offer_in(hardware.offer, spot, region), hardware.nodes, spot)


def price_of_offer(offer: Offer, machines: int, spot: bool) -> Price:
    """The price of machines of one offer."""
    kind = "spot" if spot else "on demand"
    where = f" in {offer.place}" if offer.place else ""
    return Price(
        offer.price(spot),
        machines,
        _terms(offer.provider, offer.instance, offer.historical),
        spot,
        f"{offer.provider}:{offer.instance}{where}, {kind}, as of {offer.as_of}",
        offer,
    )


@cache
def _terms(provider: str, instance: str, historical: bool) -> BillingTerms:
    return providers()[provider].billing_terms(instance, historical)


def price_of_all(
    groups: Sequence[Hardware], spot: bool, usd_per_hour: float | None, region: str | None
) -> Price | None:
    """The price of groups of machines together; None if that of any group is unknown."""
    if usd_per_hour is not None:
        return price_of(groups[0], spot, usd_per_hour, region)
    prices = [price_of(group, spot, None, region) for group in groups]
    known = [price for price in prices if price is not None]
    return replace(known[0], more=tuple(known[1:])) if len(known) == len(prices) else None


def offer_in(offer: Offer, spot: bool, region: str | None) -> Offer:
    """The same machine in `region`, or where it is cheapest."""
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
                f"the spot price of {offer.provider}:{offer.instance} is unknown; omit `spot`, or give "
                "`usd_per_hour`"
            )
        return min(priced, key=lambda one: (one.price(spot=True), one.region))
    return listed[0]


def billed_seconds_each(seconds: Floats, granularity: Floats, minimum: Floats) -> Floats:
    """`facts.billing.billed_seconds` of many rentals at once.

    ⌈max(t, minimum) / granularity⌉ · granularity; max(t, minimum) without granularity; 0 for no time.
    """
    charged = np.maximum(seconds, minimum)
    has_units = granularity > 0
    unit = np.where(has_units, granularity, 1.0)
    rounded = np.ceil(np.round(charged / unit, ROUNDING_DIGITS)) * unit
    return np.asarray(np.where(seconds == 0, 0.0, np.where(has_units, rounded, charged)), dtype=float)
