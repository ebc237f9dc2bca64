"""Bring in newer prices: a price file becomes the user's own offers.

The file is read and checked completely before anything is written. Imported offers live in one file in the
user's data directory, replaced in one step, so a reader sees the old prices or the new ones, never a mixture;
a lock keeps two imports from losing each other's clouds.
"""

from __future__ import annotations

import csv
import fcntl
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, final

from foretrain.answers import Answer
from foretrain.encoding import encode
from foretrain.errors import InvalidRequest
from foretrain.facts.offers import (
    USER_COLUMNS,
    Offer,
    all_offers,
    imported_offers,
    is_older,
    latest_as_of,
    offer_fields,
    shipped_offers,
    user_offers_file,
)
from foretrain.facts.price_catalog import Outlier, SkippedRows, convert, read_price_file, refuse_missing
from foretrain.facts.user_data import write_atomically


@final
@dataclass(frozen=True)
class ImportReport(Answer):
    """What an import did: how many offers each cloud got, and all that was not taken over, with reasons.

    `older` names clouds whose known offers are newer than the file; they keep them.
    """

    file: str
    as_of: str
    rows: int
    offers_by_cloud: tuple[tuple[str, int], ...]
    older: tuple[str, ...]
    skipped: tuple[SkippedRows, ...]
    outliers: tuple[Outlier, ...]
    spot_prices_dropped: int

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
    """Import a price file (see `price_catalog` for its layout) into the user's data directory.

    Each cloud in the file gets the file's offers in place of the ones known so far, unless those are newer. A
    malformed file raises `InvalidData` and changes nothing. Importing the same file again changes nothing.
    """
    dated = as_of.isoformat() if as_of is not None else _date_in_name(file)
    rows = read_price_file(file)
    clouds = {row.cloud for row in rows}
    others = [offer for offer in all_offers() if offer.provider not in clouds]
    converted = convert(rows, dated, "user-import", others)
    taken = _merge_into_user_file(converted.offers)
    older = {offer.provider for offer in converted.offers} - {offer.provider for offer in taken}
    return ImportReport(
        file=file.name,
        as_of=dated,
        rows=len(rows),
        offers_by_cloud=tuple(sorted(Counter(offer.provider for offer in taken).items())),
        older=tuple(sorted(older)),
        skipped=converted.skipped,
        outliers=converted.outliers,
        spot_prices_dropped=converted.spot_prices_dropped,
    )


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


def _merge_into_user_file(offers: Sequence[Offer]) -> list[Offer]:
    """Put offers in place of their clouds' imported ones; returns those that were not too old."""
    file = user_offers_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            before = imported_offers(file) if file.exists() else ()
            dates = latest_as_of((*shipped_offers(), *before))
            taken = [offer for offer in offers if not is_older(offer.as_of, dates.get(offer.provider, ""))]
            clouds = {offer.provider for offer in taken}
            kept = (offer for offer in before if offer.provider not in clouds)
            if taken:
                _replace_file(file, sorted((*kept, *taken), key=_place))
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {str(file)!r}: {error.strerror}; set FORETRAIN_HOME to a directory of yours"
        ) from error
    return taken


def _place(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.instance, offer.region


def _replace_file(file: Path, offers: Iterable[Offer]) -> None:
    """Put the offers in place of the file in one step."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(USER_COLUMNS)
    writer.writerows((offer.provider, offer.as_of, offer.source, *offer_fields(offer)) for offer in offers)
    write_atomically(file, text.getvalue())


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
