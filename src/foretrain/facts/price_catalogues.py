"""Newer prices through an installed catalogue package, as rows of a price file.

    gpuhunt     `Catalog.query()` downloads the catalogue that its project publishes every day; with
                GPUHUNT_CATALOG_DIR it reads the files of a folder and no network is used

The package names providers, accelerators and regions in its own way; the rules of foretrain's providers say
which device an accelerator is, as for a price file. A provider or accelerator without a rule is reported as
skipped. Nothing is asked of a network unless the user names the package.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from foretrain.errors import BackendFailed, InvalidRequest, MissingData
from foretrain.facts.price_files import ImportReport, PriceRow, SkippedRows, import_rows
from foretrain.facts.providers import Provider, providers

_CLOUDS = {"lambdalabs": "lambda", "digitalocean": "do", "vastai": "vast"}
"""Providers whose names differ from foretrain's."""
_TPU_VENDOR = "google"
_ZONE = re.compile(r"-[a-z]$")
_FOLDER_VARIABLE = "GPUHUNT_CATALOG_DIR"


class CatalogueItem(Protocol):
    """What is read of a machine in a catalogue, on demand or spot: the fields of gpuhunt's `CatalogItem`."""

    provider: str
    instance_name: str
    location: str
    price: float
    cpu: float
    memory: float
    gpu_count: int
    gpu_name: str | None
    gpu_memory: float | None
    gpu_vendor: Any
    spot: bool


class Catalogue(NamedTuple):
    """What a package lists, how old it is where it says so, and what it complained about."""

    items: tuple[CatalogueItem, ...]
    as_of: str | None
    complaints: tuple[str, ...] = ()


def import_catalogue(name: str, as_of: date | None = None) -> ImportReport:
    """Import the prices of a catalogue package into the user's data directory.

    A package that is not installed raises `MissingData`, one that fails `BackendFailed`, one that does not
    date its prices `InvalidRequest` unless `as_of` does.
    """
    catalogue = CATALOGUES[name]()
    dated = as_of.isoformat() if as_of is not None else catalogue.as_of
    if dated is None:
        raise InvalidRequest(f"{name} does not say when its prices were taken; give the date: `as_of`")
    rows, skipped = price_rows(catalogue.items)
    if not rows:
        reasons = "; ".join(catalogue.complaints) or "it lists no GPU of a provider that is known here"
        raise BackendFailed(f"{name} gave no prices: {reasons}")
    return import_rows(rows, dated, name, skipped, catalogue.complaints)


def price_rows(items: Iterable[CatalogueItem]) -> tuple[tuple[PriceRow, ...], tuple[SkippedRows, ...]]:
    """The machines of a catalogue as rows of a price file, on-demand and spot price of one together."""
    prices: dict[tuple[str, str, str, int, str], dict[bool, float]] = {}
    sizes: dict[tuple[str, str, str, int, str], tuple[float, float]] = {}
    skipped: Counter[tuple[str, str]] = Counter()
    for item in items:
        if not item.gpu_count or not item.gpu_name:
            continue
        provider = providers().find(_CLOUDS.get(item.provider, item.provider))
        if provider is None:
            skipped[item.provider, item.gpu_name] += 1
            continue
        accelerator = _accelerator(item, provider)
        instance = _instance(item, accelerator, provider)
        key = (provider.id, instance, accelerator, item.gpu_count, _region(item, provider))
        known = prices.setdefault(key, {})
        known[item.spot] = min(item.price, known.get(item.spot, item.price))
        sizes[key] = (item.cpu, item.memory)
    rows = tuple(
        PriceRow(number, *key, *sizes[key], prices[key].get(False), prices[key].get(True))
        for number, key in enumerate(sorted(prices), start=1)
    )
    unknown = tuple(
        SkippedRows(cloud, gpu, "foretrain does not know this provider", count)
        for (cloud, gpu), count in sorted(skipped.items())
    )
    return rows, unknown


def _accelerator(item: CatalogueItem, provider: Provider) -> str:
    """The name that price files have for it: the memory is part of the name where there are two sizes."""
    name = str(item.gpu_name)
    if getattr(item.gpu_vendor, "value", item.gpu_vendor) == _TPU_VENDOR:
        return f"tpu-{name}"
    with_memory = f"{name}-{item.gpu_memory:g}GB" if item.gpu_memory else name
    return with_memory if provider.identify(with_memory, item.instance_name) is not None else name


def _instance(item: CatalogueItem, accelerator: str, provider: Provider) -> str:
    """The name of a general machine with accelerators attached is that of both together."""
    attached = {machine.machine for machine in provider.machines if machine.attached}
    if item.instance_name in attached:
        return f"{item.instance_name}+{item.gpu_count}x{accelerator}"
    return item.instance_name


def _region(item: CatalogueItem, provider: Provider) -> str:
    """The region of a zone, for clouds that price machine and accelerator by region and list zones."""
    return _ZONE.sub("", item.location) if provider.machines else item.location


# ---------------------------------------------------------------- gpuhunt


def _gpuhunt() -> Catalogue:
    try:
        import gpuhunt
    except ImportError as error:
        raise MissingData("newer prices through gpuhunt need the package: pip install gpuhunt") from error
    folder = os.environ.get(_FOLDER_VARIABLE)
    with _complaints("gpuhunt") as complaints:
        try:
            catalog = gpuhunt.Catalog(auto_reload=folder is None)
            listed = None if folder is None else sorted(file.stem for file in Path(folder).glob("*.csv"))
            items = tuple(catalog.query(provider=listed, min_gpu_count=1))
        except Exception as error:
            remedy = "check the network, or give a file"
            raise BackendFailed(f"gpuhunt gave no prices: {error}; {remedy}") from error
    versions = [str(getattr(each, "version", "")) for each in dict(catalog.catalog).values()]
    return Catalogue(items, _oldest(versions), tuple(dict.fromkeys(complaints)))


def _oldest(versions: Iterable[str]) -> str | None:
    """The oldest date in versions such as 20261117-1204: no price is older; None where one has no date."""
    dates = []
    for version in versions:
        stamp = re.match(r"(20\d\d)(\d\d)(\d\d)", version)
        try:
            dates.append(date(*map(int, stamp.groups())) if stamp else None)
        except ValueError:
            dates.append(None)
    known = [each for each in dates if each is not None]
    return min(known).isoformat() if known and len(known) == len(dates) else None


@contextmanager
def _complaints(logger: str) -> Iterator[list[str]]:
    """What a package logs as a warning or worse, as sentences instead of tracebacks on standard error."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    log, collector = logging.getLogger(logger), Collector(logging.WARNING)
    propagates = log.propagate
    log.addHandler(collector)
    log.propagate = False
    try:
        yield messages
    finally:
        log.removeHandler(collector)
        log.propagate = propagates


CATALOGUES: Mapping[str, Callable[[], Catalogue]] = {"gpuhunt": _gpuhunt}
"""Packages by name, and how each is asked."""
