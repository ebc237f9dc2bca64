"""Energy and emissions of a job: the power of its machines over its time, the PUE of the site, the grid.

kWh = devices · TDP · (machine power / TDP) · seconds · PUE / 3.6e6        kg CO2e = kWh · g/kWh / 1000
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrain.errors import MissingData
from foretrain.estimates import Quantiles
from foretrain.facts.energy import co2_kg, energy_kwh, grid_intensity, known_grid, pues
from foretrain.facts.hardware import Hardware
from foretrain.facts.running import POWER, default
from foretrain.jobs.bill import Price

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
