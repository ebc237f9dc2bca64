"""Bring in newer prices: a price file becomes the user's own offers.

The file is read and checked completely before anything is written. Imported offers live in one file in the
user's data directory, replaced in one step, so a reader sees the old prices or the new ones, never a mixture; a
lock keeps two imports from losing each other's clouds.
"""

from __future__ import annotations

import csv
import fcntl
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from foretrain.errors import InvalidRequest
from foretrain.facts.offers import (
    USER_COLUMNS,
    Offer,
    all_offers,
    imported_offers,
    latest_as_of,
    offer_fields,
    user_offers_file,
)
from foretrain.facts.price_catalog import Skipped, convert, read_price_file
from foretrain.facts.price_outliers import Outlier


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did: how many offers each cloud got, and all that was not taken over, with reasons.

    `older` names clouds whose known offers are newer than the file; they keep them.
    """

    file: str
    as_of: str
    rows: int
    offers_by_cloud: tuple[tuple[str, int], ...]
    older: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    outliers: tuple[Outlier, ...]
    spot_prices_dropped: int

    @property
    def offers(self) -> int:
        """How many offers came in."""
        return sum(count for _, count in self.offers_by_cloud)


def import_prices(file: Path, as_of: date | None = None) -> ImportReport:
    """Import a price file (see `price_catalog` for its layout) into the user's data directory.

    Each cloud in the file gets the file's offers in place of the ones known so far, unless those are newer. A
    malformed file raises `InvalidData` and changes nothing. Importing the same file again changes nothing.
    """
    dated = as_of.isoformat() if as_of is not None else _date_in_name(file)
    rows = read_price_file(file)
    known = [offer for offer in all_offers() if not offer.historical]
    clouds = {row.cloud for row in rows}
    others = [offer for offer in known if offer.provider not in clouds]
    converted = convert(rows, dated, f"import of {file.name}", others)
    dates = latest_as_of(known)
    older = sorted(cloud for cloud in clouds if dates.get(cloud, "") > dated)
    taken = [offer for offer in converted.offers if offer.provider not in older]
    if taken:
        _merge_into_user_file(taken)
    return ImportReport(
        file=file.name,
        as_of=dated,
        rows=len(rows),
        offers_by_cloud=tuple(sorted(Counter(offer.provider for offer in taken).items())),
        older=tuple(older),
        skipped=converted.skipped,
        outliers=converted.outliers,
        spot_prices_dropped=converted.spot_prices_dropped,
    )


def _date_in_name(file: Path) -> str:
    """The date in a file's name: `..._2026_08.csv`, `..._2026_08_22.csv.gz`, `prices-2026-08-22.csv`."""
    found = re.search(r"(?<!\d)(20\d\d)[_-](\d\d)(?:[_-](\d\d))?(?!\d)", file.name)
    if found is None:
        raise InvalidRequest(
            f"{file.name!r} does not say when its prices were taken; give the date, or name the file like "
            "prices_2026_08.csv or prices_2026-08-22.csv"
        )
    year, month, day = found.groups()
    try:
        whole = date(int(year), int(month), int(day or 1))
    except ValueError as error:
        raise InvalidRequest(f"{file.name!r} holds the date {found.group()}: {error}") from error
    return whole.isoformat() if day else f"{year}-{month}"


def _merge_into_user_file(taken: list[Offer]) -> None:
    file = user_offers_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with _locked(file.with_suffix(".lock")):
        clouds = {offer.provider for offer in taken}
        before = imported_offers(file) if file.exists() else ()
        kept = [offer for offer in before if offer.provider not in clouds]
        merged = sorted((*kept, *taken), key=lambda offer: (offer.provider, offer.instance, offer.region))
        _replace_file(file, merged)


def _replace_file(file: Path, offers: Iterable[Offer]) -> None:
    """Write beside the file, then put it in its place in one step."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", text=True)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as lines:
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(USER_COLUMNS)
            writer.writerows(
                (offer.provider, offer.as_of, offer.source, *offer_fields(offer)) for offer in offers
            )
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
