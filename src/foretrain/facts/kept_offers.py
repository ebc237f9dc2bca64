"""The file of the user's offers, imported and own: replaced in one step, one writer at a time.

A reader sees the old prices or the new ones, never a mixture; a lock keeps two writers from losing each
other's offers.
"""

from __future__ import annotations

import csv
import fcntl
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from foretrain.errors import InvalidRequest
from foretrain.facts.offers import USER_COLUMNS, Offer, kept_offers, offer_fields
from foretrain.facts.providers import user_offers_file
from foretrain.facts.user_data import write_atomically


def change_kept(change: Callable[[tuple[Offer, ...]], Iterable[Offer] | None]) -> None:
    """Replace the kept offers by what `change` makes of them, in one step; None leaves the file as it is."""
    file = user_offers_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            after = change(kept_offers())
            if after is not None:
                _replace_file(file, sorted(after, key=_place))
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {str(file)!r}: {error.strerror}; set FORETRAIN_HOME to a directory of yours"
        ) from error


def _place(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.instance, offer.region


def _replace_file(file: Path, offers: Iterable[Offer]) -> None:
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
