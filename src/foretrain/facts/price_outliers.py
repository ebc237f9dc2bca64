"""Prices too far from the others to be believed.

A price catalogue gathered by machines holds slips: a misplaced decimal point, the price of eight devices
filed under one, a leftover. Two rules look for them, each comparing like with like, on demand or spot:

    market    price of a device-hour  vs  the median over providers of each one's median, for its family
    regions   price of an instance    vs  the median of the same instance over its regions   (on demand only)

    outlier   if   price < typical / factor   or   price > typical · factor

The factors come from the snapshot of 2026-08. There, device-hours lie between 0.25 and 9 times the market's
median (a marketplace at the low end, one small GPU in a large machine at the high end), but for a few at a
sixteenth of it; so the market rule allows a factor of 10. One instance's on-demand price lies within 1.8
times the median of its regions, so 3 is generous, while spot prices of one instance do differ tenfold and are
left to the market rule. The median of medians keeps a provider that lists one price in fourteen regions from
outvoting the others. Fewer than three providers make no market, and fewer than three regions nothing typical.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from foretrain.facts.offers import Offer

MARKET_FACTOR = 10.0
REGION_FACTOR = 3.0
FEWEST_TO_COMPARE = 3


@dataclass(frozen=True, slots=True)
class Outlier:
    """A price that was not believed, per device-hour, and the typical one it was compared with."""

    offer: Offer
    spot: bool
    usd_per_device_hour: float
    typical_usd_per_device_hour: float

    def __str__(self) -> str:
        kind = "spot" if self.spot else "on demand"
        return (
            f"{self.offer.provider}:{self.offer.instance} in {self.offer.region}: "
            f"${self.usd_per_device_hour:.4g} per {self.offer.family} and hour {kind}, "
            f"where ${self.typical_usd_per_device_hour:.4g} is typical"
        )


def without_outliers(
    offers: Iterable[Offer], others: Sequence[Offer] = ()
) -> tuple[list[Offer], tuple[Outlier, ...]]:
    """The offers that are believed, and the prices that are not.

    An unbelievable on-demand price removes the offer; an unbelievable spot price only itself. `others`
    help to tell what the market asks and are not judged.
    """
    judged = list(offers)
    market = _market_prices((*judged, *others), spot=False)
    spot_market = _market_prices((*judged, *others), spot=True)
    regions = _region_prices(judged)
    kept: list[Offer] = []
    outliers: list[Outlier] = []
    for offer in judged:
        odd = _outlier(offer, market.get(offer.family), MARKET_FACTOR) or _outlier(
            offer, regions.get(_machine(offer)), REGION_FACTOR
        )
        if odd is not None:
            outliers.append(odd)
            continue
        odd_spot = _outlier(offer, spot_market.get(offer.family), MARKET_FACTOR, spot=True)
        if odd_spot is not None:
            outliers.append(odd_spot)
            offer = replace(offer, spot_usd_per_hour=None)
        kept.append(offer)
    return kept, tuple(outliers)


def _outlier(offer: Offer, typical: float | None, factor: float, spot: bool = False) -> Outlier | None:
    if typical is None or (spot and offer.spot_usd_per_hour is None):
        return None
    price = offer.price(spot) / offer.count
    if typical / factor <= price <= typical * factor:
        return None
    return Outlier(offer, spot, price, typical)


def _market_prices(offers: Iterable[Offer], spot: bool) -> Mapping[str, float]:
    """By family: the median over providers of each one's median price of a device-hour."""
    prices: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for offer in offers:
        if not offer.historical and not (spot and offer.spot_usd_per_hour is None):
            prices[offer.family][offer.provider].append(offer.price(spot) / offer.count)
    return {
        family: median(median(listed) for listed in by_provider.values())
        for family, by_provider in prices.items()
        if len(by_provider) >= FEWEST_TO_COMPARE
    }


def _region_prices(offers: Iterable[Offer]) -> Mapping[Hashable, float]:
    """By machine: the median over regions of the price of a device-hour."""
    prices: dict[Hashable, list[float]] = defaultdict(list)
    for offer in offers:
        prices[_machine(offer)].append(offer.usd_per_device_hour)
    return {machine: median(listed) for machine, listed in prices.items() if len(listed) >= FEWEST_TO_COMPARE}


def _machine(offer: Offer) -> Hashable:
    return offer.provider, offer.instance, offer.family, offer.count
