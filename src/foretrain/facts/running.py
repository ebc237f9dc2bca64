"""What running a job takes besides its steps: energy, emissions, start-up, checkpoints, failures.

    kWh = watts · seconds · PUE / 3.6e6          kg CO2e = kWh · g/kWh / 1000

Carbon intensity of grids and regions and the overhead of data centres are under `data/energy/`, the
rest in `data/running.toml`. Much of it is assumed, so each has a kind, and a front end can say which of them
an answer rests on.

Reference: Strubell et al., "Energy and Policy Considerations for Deep Learning in NLP", ACL 2019.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.estimates import Quantiles
from foretrain.facts.sheets import FactKind, data_root, read_toml
from foretrain.persisted import Malformed, restore
from foretrain.registry import Registry, normalise
from foretrain.units import JOULES_PER_KWH


@dataclass(frozen=True, slots=True)
class GridIntensity:
    """Emissions of the electricity of a place. `year` is None where the source states none."""

    code: str
    name: str
    gco2e_per_kwh: float
    year: int | None
    source: str


@dataclass(frozen=True, slots=True)
class CloudRegion:
    """A cloud's region, the grid it is on, and its own intensity where the provider publishes one."""

    provider: str
    region: str
    grid: str
    place: str
    gco2e_per_kwh: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Pue:
    """Power usage effectiveness of a provider: energy of the site over energy of its computers."""

    provider: str
    name: str
    aliases: tuple[str, ...]
    value: float
    year: int
    kind: FactKind
    source: str
    note: str


@cache
def grids() -> Registry[GridIntensity]:
    """Countries (ISO 3166-1 alpha-3) and states of the USA (ISO 3166-2), by code and name."""
    return Registry(
        "country or region",
        [
            GridIntensity(
                row["code"], row["name"], float(row["gco2e_per_kwh"]), int(row["year"]), row["source"]
            )
            for row in _rows("grid_intensity.csv")
        ],
        name=lambda grid: grid.code,
        aliases=lambda grid: (grid.name,),
    )


@cache
def cloud_regions() -> tuple[CloudRegion, ...]:
    """All cloud regions whose place is known."""
    return tuple(
        CloudRegion(
            row["provider"],
            row["region"],
            row["grid"],
            row["place"],
            float(row["gco2e_per_kwh"]) if row["gco2e_per_kwh"] else None,
            row["source"],
        )
        for row in _rows("cloud_regions.csv")
    )


@cache
def pues() -> Registry[Pue]:
    """Power usage effectiveness by provider, and the industry's as `average`."""
    entries = read_toml(data_root() / "energy" / "pue.toml")
    return Registry(
        "provider with a known PUE",
        [
            Pue(
                provider=provider,
                name=entry["name"],
                aliases=tuple(entry.get("aliases", ())),
                value=float(entry["pue"]),
                year=entry["year"],
                kind=FactKind(entry["kind"]),
                source=entry["source"],
                note=entry.get("note", ""),
            )
            for provider, entry in entries.items()
        ],
        name=lambda entry: entry.provider,
        aliases=lambda entry: entry.aliases,
        hint="The industry's average is 'average'.",
    )


@cache
def known_grid(country_or_region: str, provider: str | None = None) -> GridIntensity | None:
    """Intensity of a cloud region (of any provider unless one is named), a country or a state of the USA.

    A region without a figure of its own has that of its grid. None if the place is unknown.
    """
    wanted = normalise(country_or_region)
    named = (region for region in _regions_of(provider) if normalise(region.region) == wanted)
    region = next(named, None)
    if region is not None:
        return _intensity_of(region)
    return grids().find(country_or_region)


def grid_intensity(country_or_region: str, provider: str | None = None) -> GridIntensity:
    """The same; an unknown place raises `UnknownName`."""
    grid = known_grid(country_or_region, provider)
    if grid is None:
        regions = (region.region for region in _regions_of(provider))
        known = [*grids(), *(grid.name for grid in grids().values()), *regions]
        kind = "country or region" if provider is None else f"country or {provider} region"
        raise UnknownName(
            kind, country_or_region, known, "Name a country as USA or France, a state as US-VA."
        )
    return grid


def _regions_of(provider: str | None) -> list[CloudRegion]:
    return [
        region
        for region in cloud_regions()
        if provider is None or normalise(region.provider) == normalise(provider)
    ]


def pue(provider: str) -> Pue:
    """The overhead of a provider's data centres; an unknown one raises `UnknownName`."""
    return pues()[provider]


def energy_kwh(watts: float, seconds: float, pue: float = 1.0) -> float:
    """Energy of a site: watts · seconds · PUE / 3.6e6. `watts` is the power of the computers alone."""
    if watts < 0 or seconds < 0:
        raise InvalidRequest(f"power and time cannot be negative: {watts} W for {seconds} s")
    if pue < 1:
        raise InvalidRequest(
            f"a PUE of {pue} is impossible: a site uses at least what its computers use (1.0)"
        )
    return watts * seconds * pue / JOULES_PER_KWH


def co2_kg(kwh: float, grams_per_kwh: float) -> float:
    """Emissions: kWh · g/kWh / 1000, in kilograms of CO2 equivalent."""
    if kwh < 0 or grams_per_kwh < 0:
        raise InvalidRequest(f"energy and intensity cannot be negative: {kwh} kWh at {grams_per_kwh} g/kWh")
    return kwh * grams_per_kwh / 1000


def _intensity_of(region: CloudRegion) -> GridIntensity:
    name = f"{region.provider} {region.region.strip(' ,')} ({region.place})"
    if region.gco2e_per_kwh is None:
        return replace(grids()[region.grid], name=name)
    return GridIntensity(region.grid, name, region.gco2e_per_kwh, None, region.source)


def _rows(file: str) -> Iterator[dict[str, str]]:
    text = (data_root() / "energy" / file).read_text(encoding="utf-8")
    yield from csv.DictReader(text.splitlines())


STARTUP = "startup_seconds"
CHECKPOINT_RATE = "checkpoint_bytes_per_second"
CHECKPOINT_FIXED = "checkpoint_fixed_seconds"
SPOT_INTERRUPTIONS = "spot_interruptions_per_machine_day"
FAILURES = "failures_per_device_day"
POWER = "machine_power_over_device_tdp"
LARGEST_BATCH = "largest_global_batch_samples"
LARGEST_BATCH_TOKENS = "largest_global_batch_tokens"
OWNED_HOURS = "owned_machine_hours_per_year"
_FILE = "running.toml"


@dataclass(frozen=True, slots=True)
class Default:
    """A quantity of jobs in general, with its interval, kind and source."""

    name: str
    quantiles: Quantiles
    unit: str
    meaning: str
    kind: FactKind
    source: str
    note: str = ""


@cache
def defaults() -> dict[str, Default]:
    """All of them, by name."""
    return {name: _default(name, entry) for name, entry in read_toml(data_root() / _FILE).items()}


def default(name: str) -> Default:
    """One of them; an absent one raises `MissingData`."""
    try:
        return defaults()[name]
    except KeyError:
        raise MissingData(f"{_FILE} says nothing of {name}; it knows {', '.join(defaults())}") from None


def _default(name: str, entry: dict[str, object]) -> Default:
    try:
        return restore(Default, {**entry, "name": name, "quantiles": entry})
    except Malformed as error:
        raise InvalidData(_FILE, f"{name}: {error}") from error
