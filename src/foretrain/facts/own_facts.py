"""Hardware and prices of the user's own: checked as shipped ones are, kept in the user's data directory.

A device file is a sheet in the form of the shipped ones:

    id = "lab-x1"
    name = "Lab X1"
    kind = "gpu"            vendor, family, generation, form and per as well; aliases if it has any

    [[facts]]
    kind = "spec"
    source = "quote of 2026-10"
    memory_bytes = 85899345920

A source is one of foretrain's, or any text that says where the values are from.

Offers are rows of prices: of a private cloud, of machines in house, or negotiated with a provider.

    provider,instance,device,count,usd_per_hour,region,vcpus,memory_gib,spot_usd_per_hour,as_of
    lab,x1-8,h100-sxm,8,14.50,cellar,128,1024,,2026-11-01

The first five columns are required. An own offer stands in place of a known one of the same provider,
instance and region, and beside the others; importing newer prices leaves it. A price far from the market's
is reported and kept: the price is the user's.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import ForetrainError, InvalidData, InvalidRequest, MissingData, UnknownName
from foretrain.facts.devices import Device, device, devices, family, names_this_machine, user_devices_dir
from foretrain.facts.hardware import is_cluster_file, nodes
from foretrain.facts.integrity import problems
from foretrain.facts.offers import (
    OWN_SOURCE,
    Offer,
    all_offers,
    change_kept,
    offer_of,
    offer_place,
    own_offers,
)
from foretrain.facts.price_files import Outlier, without_outliers
from foretrain.facts.providers import providers
from foretrain.facts.sheets import identity, quantities, read_thing
from foretrain.facts.user_data import write_atomically
from foretrain.registry import normalise

KINDS = ("gpu", "cpu")
_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_SHOWN_PROBLEMS = 4


@final
@dataclass(frozen=True)
class OwnDevice(Answer):
    """A device of the user's own that was added, replaced or forgotten; `done` says which."""

    device: Device
    done: str
    file: Path

    def to_dict(self) -> dict[str, Any]:
        """Id, name, what was done, and where it is kept."""
        return {
            "id": self.device.id, "name": self.device.name, "done": self.done, "file": str(self.file),
        }  # fmt: skip

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What was done with it."""
        return ((self.device.id, self.done),)


def add_device(file: Path) -> OwnDevice:
    """Check a device file and keep it; what is wrong with it raises `InvalidData` and changes nothing.

    A device of that id which the user added before is replaced.
    """
    item = _read_device(file)
    wrong = [*_name_problems(item), *_sheet_problems(item)]
    if wrong:
        further = f"; and {len(wrong) - _SHOWN_PROBLEMS} more" if len(wrong) > _SHOWN_PROBLEMS else ""
        raise InvalidData(file.name, "; ".join(wrong[:_SHOWN_PROBLEMS]) + further)
    kept = user_devices_dir() / f"{item.id}.toml"
    done = "replaced" if kept.exists() else "added"
    write_atomically(kept, file.read_bytes())
    devices.cache_clear()
    return OwnDevice(devices()[item.id], done, kept)


def forget_device(name: str) -> OwnDevice:
    """Remove a device that the user added; a shipped one, or one on offer, raises `InvalidRequest`."""
    item = devices()[name]
    if not item.is_own:
        yours = [each.id for each in devices().values() if each.is_own]
        listed = (
            f"yours: {', '.join(yours)}"
            if yours
            else "you have added none; `foretrain devices add FILE.toml` adds one"
        )
        raise InvalidRequest(f"{item.id} comes with foretrain; only your own are forgotten ({listed})")
    offered = [each for each in own_offers() if each.device == item.id]
    if offered:
        first = f"{offered[0].provider}:{offered[0].instance}"
        raise InvalidRequest(
            f"your offer {first} has devices {item.id}; forget it first: foretrain offers forget {first}"
        )
    kept = user_devices_dir() / f"{item.id}.toml"
    kept.unlink()
    devices.cache_clear()
    return OwnDevice(item, "forgotten", kept)


def _read_device(file: Path) -> Device:
    if not file.is_file():
        raise MissingData(f"there is no file {str(file)!r}; give a device file, as docs/facts.md describes")
    item, keys = read_thing(Device, file, identity(Device))
    unknown = sorted(keys - {*identity(Device), "aliases"})
    if unknown:
        raise InvalidData(
            file.name, f"{', '.join(unknown)} is no key of a device; values stand in [[facts]] blocks"
        )
    device: Device = item
    return device


def _name_problems(item: Device) -> Iterator[str]:
    if not _ID.fullmatch(item.id) or is_cluster_file(item.id):
        yield f"the id {item.id!r} must be of lower-case letters, digits, dots and dashes, e.g. lab-x1"
    if item.kind not in KINDS:
        yield f"kind = {item.kind!r} is none of {', '.join(KINDS)}"
    for name in (item.id, *item.aliases):
        known = devices().find(name)
        if known is not None and not (known.is_own and known.id == item.id):
            yield f"{name!r} is {known.id} already; choose another name"
        elif names_this_machine(name):
            yield f"{name!r} is the CPU of this machine; choose another name"
        elif name in nodes() or name in providers():
            yield f"{name!r} is a machine or a provider; choose another name"


def _sheet_problems(item: Device) -> list[str]:
    """What is wrong with its facts, and with it among the other devices."""
    others = [each for each in devices().values() if each.id != item.id]
    return [
        problem.removeprefix(f"{item.id}: ")
        for problem in problems((*others, item), quantities(), _AnySource())
    ]


class _AnySource:
    """A user's own fact may cite any text."""

    def __contains__(self, source: object) -> bool:
        return isinstance(source, str) and bool(source.strip())


# ---- offers


REQUIRED = ("provider", "instance", "device", "count", "usd_per_hour")
OPTIONAL = ("region", "vcpus", "memory_gib", "spot_usd_per_hour", "as_of")
EXAMPLE = "lab,x1-8,h100-sxm,8,14.50"
PRIVATE = "private"
"""The region of offers that state none."""
_PROVIDER = re.compile(r"[a-z0-9][a-z0-9.-]*")


@final
@dataclass(frozen=True)
class OwnOffers(Answer):
    """Offers of the user's own that were added or forgotten; `done` says which.

    `replaced` counts those that stand in place of a known price, `unusual` are prices far from the market's.
    """

    offers: tuple[Offer, ...]
    done: str
    replaced: int = 0
    unusual: tuple[Outlier, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Every offer, and what is unusual about them."""
        plain: dict[str, Any] = encode(self)
        return plain

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What was done with each."""
        return tuple((f"{each.provider}:{each.instance}", self.done) for each in self.offers)


def add_offers(file: Path, today: date) -> OwnOffers:
    """Check a file of offers and keep them; the first bad row raises `InvalidData` and changes nothing.

    Prices without a date in the file are those of `today`, on which the user states them.
    """
    offers = tuple(_read_offers(file, today))
    places = {offer_place(offer) for offer in offers}
    known = all_offers()
    replaced = sum(offer_place(offer) in places and not offer.historical for offer in known)
    others = [offer for offer in known if offer_place(offer) not in places]
    _, unusual = without_outliers(offers, others)
    change_kept(lambda before: [*(each for each in before if not _is_own_at(each, places)), *offers])
    return OwnOffers(offers, "added", replaced, unusual)


def forget_offers(name: str) -> OwnOffers:
    """Remove own offers: all of a provider, or those of `provider:instance`; none raises `UnknownName`."""
    own = own_offers()
    machines = {normalise(f"{each.provider}:{each.instance}") for each in own}
    wanted = normalise(name)
    leaving = tuple(
        each
        for each in own
        if wanted in (normalise(each.provider), normalise(f"{each.provider}:{each.instance}"))
    )
    if not leaving:
        yours = (
            f"Yours: {', '.join(sorted(machines))}"
            if machines
            else "You have added none; `foretrain offers add FILE.csv` adds some"
        )
        raise UnknownName("offer of yours", name, {each.provider for each in own} | machines, yours)
    places = {offer_place(each) for each in leaving}
    change_kept(lambda before: [each for each in before if not _is_own_at(each, places)])
    return OwnOffers(leaving, "forgotten")


def _is_own_at(offer: Offer, places: set[tuple[str, str, str]]) -> bool:
    return offer.source == OWN_SOURCE and offer_place(offer) in places


def _read_offers(file: Path, today: date) -> Iterator[Offer]:
    if not file.is_file():
        raise MissingData(f"there is no file {str(file)!r}; give a CSV file with {','.join(REQUIRED)}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidData(file.name, f"cannot be read as text; give UTF-8: {error}") from error
    rows = csv.reader(io.StringIO(text, newline=""), strict=True, skipinitialspace=True)
    try:
        header = [column.strip() for column in next(rows, [])]
        _check_header(header, file.name)
        listed = [(number, row) for number, row in enumerate(rows, start=2) if any(map(str.strip, row))]
    except csv.Error as error:
        raise InvalidData(
            file.name, f"not valid CSV: {error}; a row is such as {EXAMPLE}", row=rows.line_num
        ) from error
    if not listed:
        raise InvalidData(file.name, f"holds a header and no offers; a row is such as {EXAMPLE}")
    seen: dict[tuple[str, str, str], int] = {}
    for number, row in listed:
        if len(row) != len(header):
            raise InvalidData(file.name, f"{len(row)} fields where the header has {len(header)}", row=number)
        cells = dict(zip(header, (cell.strip() for cell in row), strict=True))
        offer = _offer(file.name, number, cells, today)
        if offer_place(offer) in seen:
            raise InvalidData(
                file.name, f"the same machine and region as row {seen[offer_place(offer)]}", row=number
            )
        seen[offer_place(offer)] = number
        yield offer


def _check_header(header: Sequence[str], file: str) -> None:
    missing = [column for column in REQUIRED if column not in header]
    if missing:
        example = f"give {','.join(REQUIRED)}, then rows such as {EXAMPLE}"
        raise InvalidData(file, f"missing columns {', '.join(missing)}; {example}", row=1)
    unknown = [column for column in header if column not in (*REQUIRED, *OPTIONAL)]
    if unknown:
        raise InvalidData(file, f"unknown columns {', '.join(unknown)}; known: {', '.join(OPTIONAL)}", row=1)


def _offer(file: str, row: int, cells: Mapping[str, str], today: date) -> Offer:
    if not _PROVIDER.fullmatch(cells["provider"]):
        problem = f"the provider {cells['provider']!r} must be of lower-case letters, digits and dashes"
        raise InvalidData(file, problem, row=row)
    if not cells["instance"] or ":" in cells["instance"]:
        raise InvalidData(file, f"the instance {cells['instance']!r} needs a name without colons", row=row)
    as_of = cells.get("as_of") or today.isoformat()
    try:
        date.fromisoformat(as_of)
        variants = family(cells["device"])
        one = variants[0] if len(variants) == 1 else device(cells["device"])
    except (ForetrainError, ValueError) as error:
        raise InvalidData(file, str(error), row=row) from error
    fields = (
        cells["instance"], one.id, one.family, cells["count"], cells.get("vcpus", ""),
        cells.get("memory_gib", ""), cells.get("region") or PRIVATE, cells["usd_per_hour"],
        cells.get("spot_usd_per_hour", ""),
    )  # fmt: skip
    offer = offer_of(file, row, cells["provider"], fields, as_of, False, OWN_SOURCE)
    spot = offer.spot_usd_per_hour
    if spot is not None and not 0 < spot < offer.usd_per_hour:
        problem = f"spot_usd_per_hour {spot:g} is not between 0 and usd_per_hour {offer.usd_per_hour:g}"
        raise InvalidData(file, problem, row=row)
    for name, value in (("vcpus", offer.vcpus), ("memory_gib", offer.memory_bytes)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidData(file, f"{name} {cells[name]} must be above 0", row=row)
    return offer
