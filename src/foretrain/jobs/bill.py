"""What a job costs: the price of its machines, by the billing terms of their provider.

Energy and emissions of a job: the power of its machines over its time, the PUE of the site, the grid.

kWh = devices · TDP · (machine power / TDP) · seconds · PUE / 3.6e6        kg CO2e = kWh · g/kWh / 1000
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from foretrain.convergence.curves import Floats
from foretrain.errors import InvalidRequest, MissingData, UnknownName
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.facts.offers import Offer, offers_named
from foretrain.facts.providers import ROUNDING_DIGITS, UNKNOWN_TERMS, BillingTerms, billed_usd, providers
from foretrain.facts.running import POWER, co2_kg, default, energy_kwh, grid_intensity, known_grid, pues
from foretrain.registry import normalise

ROUNDING_SLACK = 1e-6
"""Billing units are counted to a millionth (`facts.providers`), so a bill may fall short by half of one."""


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
        listed = tuple(one for one in listed if normalise(one.region) == normalise(region))
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
    """`facts.providers.billed_seconds` of many rentals at once.

    ⌈max(t, minimum) / granularity⌉ · granularity; max(t, minimum) without granularity; 0 for no time.
    """
    charged = np.maximum(seconds, minimum)
    has_units = granularity > 0
    unit = np.where(has_units, granularity, 1.0)
    rounded = np.ceil(np.round(charged / unit, ROUNDING_DIGITS)) * unit
    return np.asarray(np.where(seconds == 0, 0.0, np.where(has_units, rounded, charged)), dtype=float)


_AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy and emissions of a job, and their sources; emissions are None where the place is unknown."""

    kwh: Quantiles
    co2_kg: Quantiles | None
    watts: float
    pue: float
    grams_per_kwh: float | None
    sources: tuple[str, ...]


def energy_of(
    hardware: Hardware, seconds: Quantiles, provider: str | None, region: str | None, stated: bool
) -> Energy | None:
    """The energy of a job, or None if the device's power is unknown.

    `stated`: the user named the region. An unknown region is then an error; otherwise there are no emissions.
    """
    try:
        tdp = hardware.device.tdp_watts
    except MissingData:
        return None
    power = default(POWER)
    site = pues()[provider] if provider is not None and provider in pues() else pues()[_AVERAGE]
    watts = tdp * hardware.devices
    kwh = seconds.times(Quantiles(*(energy_kwh(watts * q, 1.0, site.value) for q in _three(power.quantiles))))
    grid = None
    if region:
        grid = grid_intensity(region, provider) if stated else known_grid(region, provider)
    grams = None if grid is None else grid.gco2e_per_kwh
    return Energy(
        kwh=kwh,
        co2_kg=None if grams is None else kwh.scale(co2_kg(1.0, grams)),
        watts=watts * power.quantiles.p50,
        pue=site.value,
        grams_per_kwh=grams,
        sources=(
            f"power ({power.kind}: {power.source})",
            f"PUE of {site.name}, {site.year}",
            *(() if grid is None else (f"grid of {grid.name}",)),
        ),
    )


def energy_of_all(
    groups: Sequence[Hardware], seconds: Quantiles, price: Price | None, region: str | None
) -> Energy | None:
    """The energy of a job on all of its machines; None if the power of any group is unknown.

    A named region holds for all groups; otherwise each group is where its price is from.
    """
    offers = [group.offer for group in groups]
    if price is not None and price.offer is not None:
        offers = [one.offer for one in price.each]
    energies = [
        energy_of(
            group,
            seconds,
            None if offer is None else offer.provider,
            region or (None if offer is None else offer.region),
            stated=region is not None,
        )
        for group, offer in zip(groups, offers, strict=True)
    ]
    known = [energy for energy in energies if energy is not None]
    return _together(known) if len(known) == len(energies) else None


def _together(parts: Sequence[Energy]) -> Energy:
    """The sum. All groups run for the same time and err together, so percentiles add up."""
    if len(parts) == 1:
        return parts[0]
    watts = sum(part.watts for part in parts)
    kwh = _sum([part.kwh for part in parts])
    emitted = [part.co2_kg for part in parts if part.co2_kg is not None]
    co2 = _sum(emitted) if len(emitted) == len(parts) else None
    return Energy(
        kwh=kwh,
        co2_kg=co2,
        watts=watts,
        pue=sum(part.watts * part.pue for part in parts) / watts,
        grams_per_kwh=None if co2 is None or kwh.p50 == 0 else co2.p50 / co2_kg(kwh.p50, 1.0),
        sources=tuple(dict.fromkeys(source for part in parts for source in part.sources)),
    )


def _sum(quantiles: Sequence[Quantiles]) -> Quantiles:
    return Quantiles(*(sum(three) for three in zip(*map(_three, quantiles), strict=True)))


def _three(quantiles: Quantiles) -> tuple[float, float, float]:
    return quantiles.p10, quantiles.p50, quantiles.p90
