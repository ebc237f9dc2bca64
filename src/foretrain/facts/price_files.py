"""Price files in SkyPilot's layout, with a `cloud` column: read, checked row by row, and turned into offers.

    cloud,InstanceType,AcceleratorName,AcceleratorCount,Region,vCPUs,MemoryGiB,Price,SpotPrice

Further columns are ignored. Rows without an accelerator are machines; they matter only for clouds that price
machine and accelerator separately (see `HostMachine`), where an offer is the sum of the two:

    price of machine m in region r = price in r of a machine of m's series · vCPUs of m / vCPUs of that one

The same code converts the shipped snapshot (scripts/refresh_offers.py) and what users import. An import reads
and checks the whole file before anything is written.

Prices too far from the others are left out. A price catalogue gathered by machines holds slips: a misplaced
decimal point, the price of eight devices filed under one, a leftover. Two rules look for
them, each comparing like with like, on demand or spot:

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

import csv
import gzip
import io
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import device
from foretrain.facts.offers import (
    OWN_SOURCE,
    Offer,
    all_offers,
    change_kept,
    is_older,
    latest_as_of,
    offer_fields,
    shipped_offers,
)
from foretrain.facts.providers import HostMachine, LeftOut, Provider, providers
from foretrain.units import GIB

MARKET_FACTOR = 10.0
REGION_FACTOR = 3.0
FEWEST_TO_COMPARE = 3
COLUMNS = (
    "cloud", "InstanceType", "AcceleratorName", "AcceleratorCount", "Region", "vCPUs", "MemoryGiB",
    "Price", "SpotPrice",
)  # fmt: skip


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
    help to estimate the market price and are not judged.
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


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One valid row of a price file. `number` counts from the header, which is row 1."""

    number: int
    cloud: str
    instance: str
    accelerator: str
    count: float
    region: str
    vcpus: float | None
    memory_gib: float | None
    usd_per_hour: float | None
    spot_usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Rows that became no offer: which accelerator of which cloud, why, and how many rows."""

    cloud: str
    accelerator: str
    reason: str
    rows: int


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a price file amounts to: the offers, and everything that was left out of them.

    `spot_prices_dropped` counts spot prices that are no lower than the on-demand price: no one would choose
    them, and catalogues repeat the on-demand price where a cloud has no spot market.
    """

    offers: tuple[Offer, ...]
    skipped: tuple[SkippedRows, ...]
    outliers: tuple[Outlier, ...]
    spot_prices_dropped: int


def refuse_missing(file: Path) -> None:
    """Raise `MissingData` where there is no such file."""
    if not file.is_file():
        raise MissingData(
            f"there is no file {str(file)!r}; give a price CSV, plain or .gz, or the package gpuhunt"
        )


def read_price_file(file: Path) -> tuple[PriceRow, ...]:
    """All rows of a price file (plain or .gz); the first bad one raises `InvalidData` with its number."""
    refuse_missing(file)
    content = file.read_bytes()
    try:
        text = (gzip.decompress(content) if file.suffix == ".gz" else content).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        problem = f"cannot be read as {file.suffix or 'CSV'} text; give UTF-8: {error}"
        raise InvalidData(file.name, problem) from error
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(rows, [])
        missing = [column for column in COLUMNS if column not in header]
        if missing:
            raise InvalidData(file.name, f"missing columns {', '.join(missing)}", row=1)
        read = tuple(
            _price_row(file.name, number, header, row)
            for number, row in enumerate(rows, start=2)
            if row  # a blank line
        )
    except csv.Error as error:
        raise InvalidData(file.name, f"not valid CSV: {error}", row=rows.line_num) from error
    if not read:
        raise InvalidData(file.name, "holds a header and no prices")
    return read


def convert(rows: Iterable[PriceRow], as_of: str, source: str, others: Sequence[Offer] = ()) -> Conversion:
    """Offers from the rows of a price file; `others` are offers that help to estimate the market price."""
    listed = tuple(rows)
    machine_rates = _machine_rates(listed)
    skipped: Counter[tuple[str, str, str]] = Counter()
    offers: list[Offer] = []
    for row in listed:
        result = _offers_of(row, machine_rates, as_of, source)
        if isinstance(result, str):
            skipped[row.cloud, row.accelerator or "(no accelerator)", result] += 1
        else:
            offers.extend(result)
    merged = _cheapest_zone(offers)
    cheaper_spot = [_without_useless_spot(offer) for offer in merged]
    dropped = sum(before is not after for before, after in zip(merged, cheaper_spot, strict=True))
    kept, outliers = without_outliers(cheaper_spot, others)
    return Conversion(
        offers=tuple(sorted(kept, key=lambda offer: (offer.provider, offer.instance, offer.region))),
        skipped=tuple(SkippedRows(*key, rows=count) for key, count in sorted(skipped.items())),
        outliers=outliers,
        spot_prices_dropped=dropped,
    )


def _price_row(file: str, number: int, header: list[str], fields: list[str]) -> PriceRow:
    if len(fields) != len(header):
        raise InvalidData(file, f"{len(fields)} fields where the header has {len(header)}", row=number)
    text = dict(zip(header, (field.strip() for field in fields), strict=True))
    cloud = text["cloud"]
    if not cloud:
        raise InvalidData(file, "the cloud is empty", row=number)
    if cloud not in providers():
        unknown = UnknownName("cloud", cloud, providers(), "A new cloud is a folder in facts/data/providers")
        raise InvalidData(file, str(unknown), row=number)
    numbers = {column: _number(file, number, column, text[column]) for column in COLUMNS[3:4] + COLUMNS[5:]}
    accelerator, count = text["AcceleratorName"], numbers["AcceleratorCount"]
    if accelerator and not (count and count > 0):
        raise InvalidData(file, f"AcceleratorCount is {text['AcceleratorCount']!r}, not above 0", row=number)
    if not text["InstanceType"] and not (accelerator and providers()[cloud].machines):
        raise InvalidData(file, "the InstanceType is empty", row=number)
    return PriceRow(
        number=number,
        cloud=providers()[cloud].id,
        instance=text["InstanceType"],
        accelerator=accelerator,
        count=count or 0.0,
        region=text["Region"],
        vcpus=numbers["vCPUs"],
        memory_gib=numbers["MemoryGiB"],
        usd_per_hour=numbers["Price"],
        spot_usd_per_hour=numbers["SpotPrice"] or None,
    )


def _number(file: str, row: int, column: str, text: str) -> float | None:
    """The number in a field, None for an empty one; anything but a finite number from 0 up is an error."""
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidData(file, f"{column} is {text!r}, not a number", row=row)
    if value < 0:
        raise InvalidData(file, f"{column} is {text}, below 0", row=row)
    return value


class _MachineRate(NamedTuple):
    """What a machine series costs per vCPU in one region, its memory included."""

    usd_per_hour: float
    spot_usd_per_hour: float | None


_MachineRates = Mapping[tuple[str, str, str], _MachineRate]
"""By cloud, series and region."""


def _machine_rates(rows: Iterable[PriceRow]) -> _MachineRates:
    """Rates from the machine rows of the file, and from the shipped machine prices where it has none."""
    rates: dict[tuple[str, str, str], _MachineRate] = {}
    for provider in providers().values():
        if provider.machine_prices is not None:
            for machine in csv.DictReader(
                (provider.folder / provider.machine_prices).read_text().splitlines()
            ):
                vcpus = float(machine["vcpus"])
                rates[provider.id, _series(machine["machine"]), machine["region"]] = _MachineRate(
                    float(machine["usd_per_hour"]) / vcpus, float(machine["spot_usd_per_hour"]) / vcpus
                )
    for row in rows:
        if not row.accelerator and row.vcpus and row.usd_per_hour is not None:
            spot = row.spot_usd_per_hour
            rates[row.cloud, _series(row.instance), row.region] = _MachineRate(
                row.usd_per_hour / row.vcpus, spot / row.vcpus if spot else None
            )
    return rates


def _series(machine: str) -> str:
    """`a2-highgpu` of `a2-highgpu-8g`: the machines that share a ratio of memory to vCPUs."""
    return machine.rpartition("-")[0]


def _offers_of(row: PriceRow, rates: _MachineRates, as_of: str, source: str) -> list[Offer] | str:
    """The offers of a row, or why it has none."""
    provider = providers()[row.cloud]
    if not row.accelerator:
        return "a machine without accelerators"
    rule = provider.identify(row.accelerator, row.instance)
    if rule is None:
        return "no device is mapped to this accelerator"
    if isinstance(rule, LeftOut):
        return rule.reason
    if row.count != int(row.count):
        return "a fraction of a device"
    if not row.usd_per_hour:
        return "no on-demand price"
    offer = Offer(
        provider=provider.id,
        instance=row.instance,
        device=rule.device,
        family=rule.family or device(rule.device or "").family,
        count=rule.count or int(row.count),
        vcpus=row.vcpus,
        memory_bytes=None if row.memory_gib is None else row.memory_gib * GIB,
        region=row.region,
        usd_per_hour=row.usd_per_hour,
        spot_usd_per_hour=row.spot_usd_per_hour,
        as_of=as_of,
        historical=False,
        source=source,
    )
    return [offer] if row.instance else _in_machines(offer, row.accelerator, provider, rates)


def _in_machines(
    offer: Offer, accelerator: str, provider: Provider, rates: _MachineRates
) -> list[Offer] | str:
    """The offer of bare accelerators, in each machine that carries them."""
    machines = [
        machine
        for machine in provider.machines
        if machine.accelerator == accelerator and machine.count == offer.count
    ]
    priced = list(_priced_machines(machines, provider, offer.region, rates))
    if not priced:
        return "no price is known of a machine that carries them in this region"
    return [
        replace(
            offer,
            instance=machine.instance,
            vcpus=machine.vcpus,
            memory_bytes=machine.memory_gib * GIB,
            usd_per_hour=offer.usd_per_hour + rate.usd_per_hour * machine.vcpus,
            spot_usd_per_hour=(
                None
                if offer.spot_usd_per_hour is None or rate.spot_usd_per_hour is None
                else offer.spot_usd_per_hour + rate.spot_usd_per_hour * machine.vcpus
            ),
        )
        for machine, rate in priced
    ]


def _priced_machines(
    machines: Iterable[HostMachine], provider: Provider, region: str, rates: _MachineRates
) -> Iterator[tuple[HostMachine, _MachineRate]]:
    for machine in machines:
        rate = rates.get((provider.id, _series(machine.machine), region))
        if rate is not None:
            yield machine, rate


def _cheapest_zone(offers: Iterable[Offer]) -> list[Offer]:
    """One offer per instance and region: full catalogues list every zone of a region."""
    merged: dict[tuple[str, str, str | None, str, int, str], Offer] = {}
    for offer in offers:
        key = (offer.provider, offer.instance, offer.device, offer.family, offer.count, offer.region)
        other = merged.get(key)
        if other is None:
            merged[key] = offer
        else:
            spots = [s for s in (offer.spot_usd_per_hour, other.spot_usd_per_hour) if s is not None]
            merged[key] = replace(
                other,
                usd_per_hour=min(offer.usd_per_hour, other.usd_per_hour),
                spot_usd_per_hour=min(spots, default=None),
            )
    return list(merged.values())


def _without_useless_spot(offer: Offer) -> Offer:
    if offer.spot_usd_per_hour is not None and offer.spot_usd_per_hour >= offer.usd_per_hour:
        return replace(offer, spot_usd_per_hour=None)
    return offer


@dataclass(frozen=True, slots=True)
class PriceChanges:
    """Offers of an import against those known before: another price, new, no longer listed, the same."""

    changed: int
    new: int
    gone: int
    same: int


@final
@dataclass(frozen=True)
class ImportReport(Answer):
    """What an import did: how many offers each cloud got, and all that was not taken over, with reasons.

    `file` is the name of the file or catalogue package, `complaints` what that package logged. `older` names
    clouds whose known offers are newer; they keep them.
    """

    file: str
    as_of: str
    rows: int
    offers_by_cloud: tuple[tuple[str, int], ...]
    changes: PriceChanges
    older: tuple[str, ...]
    skipped: tuple[SkippedRows, ...]
    outliers: tuple[Outlier, ...]
    spot_prices_dropped: int
    complaints: tuple[str, ...] = ()

    @property
    def offers(self) -> int:
        """How many offers came in."""
        return sum(count for _, count in self.offers_by_cloud)

    def to_dict(self) -> dict[str, Any]:
        """Counts, and everything that was left out."""
        plain: dict[str, Any] = encode(self)
        return plain

    def summary(self) -> tuple[tuple[str, str], ...]:
        """Where prices came from, and how many of each cloud."""
        return (("file", self.file), ("as of", self.as_of), *((c, str(n)) for c, n in self.offers_by_cloud))


def import_prices(file: Path, as_of: date | None = None) -> ImportReport:
    """Import a price file into the user's data directory.

    Each cloud in the file gets the file's offers in place of the ones known so far, unless those are newer. A
    malformed file raises `InvalidData` and changes nothing. Importing the same file again changes nothing.
    """
    dated = as_of.isoformat() if as_of is not None else _date_in_name(file)
    return import_rows(read_price_file(file), dated, file.name)


def import_rows(
    rows: Sequence[PriceRow],
    as_of: str,
    file: str,
    skipped: Sequence[SkippedRows] = (),
    complaints: Sequence[str] = (),
) -> ImportReport:
    """Import the rows of a price file or catalogue; `skipped` and `complaints` go into the report."""
    before = [offer for offer in all_offers() if not offer.historical and offer.source != OWN_SOURCE]
    clouds = {row.cloud for row in rows}
    others = [offer for offer in all_offers() if offer.provider not in clouds]
    converted = convert(rows, as_of, "user-import", others)
    taken = _merge_into_kept(converted.offers)
    older = {offer.provider for offer in converted.offers} - {offer.provider for offer in taken}
    return ImportReport(
        file=file,
        as_of=as_of,
        rows=len(rows),
        offers_by_cloud=tuple(sorted(Counter(offer.provider for offer in taken).items())),
        changes=_changes(before, taken),
        older=tuple(sorted(older)),
        skipped=(*converted.skipped, *skipped),
        outliers=converted.outliers,
        spot_prices_dropped=converted.spot_prices_dropped,
        complaints=tuple(complaints),
    )


def _changes(before: Iterable[Offer], taken: Sequence[Offer]) -> PriceChanges:
    """What an import changed, over the clouds that it was taken for."""
    clouds = {offer.provider for offer in taken}
    old = {_place(offer): _prices(offer) for offer in before if offer.provider in clouds}
    new = {_place(offer): _prices(offer) for offer in taken}
    both = old.keys() & new.keys()
    changed = sum(old[place] != new[place] for place in both)
    return PriceChanges(
        changed, len(new.keys() - old.keys()), len(old.keys() - new.keys()), len(both) - changed
    )


def _place(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.instance, offer.region


def _prices(offer: Offer) -> tuple[str, ...]:
    """Both prices as they are kept: a file has five decimals."""
    return offer_fields(offer)[-2:]


def _date_in_name(file: Path) -> str:
    """The date in a file's name: `..._2026_08.csv`, `..._2026_08_22.csv.gz`, `prices-2026-08-22.csv`."""
    refuse_missing(file)
    stamp = re.search(r"(?<!\d)(20\d\d)[_-](\d\d)(?:[_-](\d\d))?(?!\d)", file.name)
    if stamp is None:
        raise InvalidRequest(
            f"{file.name!r} does not say when its prices were taken; give the date, or name the file like "
            "prices_2026_08.csv or prices_2026-08-22.csv"
        )
    year, month, day = stamp.groups()
    try:
        whole = date(int(year), int(month), int(day or 1))
    except ValueError as error:
        raise InvalidRequest(f"{file.name!r} holds the date {stamp.group()}: {error}") from error
    return whole.isoformat() if day else f"{year}-{month}"


def _merge_into_kept(offers: Sequence[Offer]) -> list[Offer]:
    """Put offers in place of their clouds' imported ones; returns those that were not too old."""
    taken: list[Offer] = []

    def merged(before: tuple[Offer, ...]) -> Iterable[Offer] | None:
        imported = [offer for offer in before if offer.source != OWN_SOURCE]
        dates = latest_as_of((*shipped_offers(), *imported))
        taken.extend(offer for offer in offers if not is_older(offer.as_of, dates.get(offer.provider, "")))
        clouds = {offer.provider for offer in taken}
        kept = (offer for offer in before if offer.source == OWN_SOURCE or offer.provider not in clouds)
        return (*kept, *taken) if taken else None

    change_kept(merged)
    return taken
