"""Rebuild the shipped offers from a price snapshot.

    python scripts/refresh_offers.py --data DIR
    python scripts/refresh_offers.py --data DIR --check    # say whether the shipped offers are up to date

DIR holds `prices/gpu_offers_<YYYY>_<MM>.csv.gz` in the layout `foretrain.facts.price_files` describes. For
each cloud in it, the file its `provider.toml` lists as current (not historical) is written anew, with that
file's source. Everything left out is printed. To ship a newer snapshot, first put its name, date and source
into the `[[offers]]` block of each provider.toml, and its source into sources.toml.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from foretrain.facts.offers import OFFER_COLUMNS, Offer, offer_fields
from foretrain.facts.price_files import Conversion, convert, read_price_file
from foretrain.facts.providers import OfferFile, Provider, providers


def main() -> None:
    """Convert the newest snapshot under --data, then write or compare the shipped offers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="directory of public data sets")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the offers differ")
    arguments = parser.parse_args()
    snapshots = sorted((arguments.data / "prices").glob("gpu_offers_*.csv.gz"))
    if not snapshots:
        parser.error("no prices/gpu_offers_*.csv.gz in that directory")
    rows = read_price_file(snapshots[-1])
    # Dates and sources stand in provider.toml, so none is given here.
    conversion = convert(rows, as_of="", source="")
    files = {
        cloud: (
            Path(str(providers()[cloud].folder)) / _current(providers()[cloud]).file,
            _text(offer for offer in conversion.offers if offer.provider == cloud),
        )
        for cloud in sorted({row.cloud for row in rows})
    }
    if arguments.check:
        stale = [cloud for cloud, (file, text) in files.items() if file.read_text("utf-8") != text]
        if stale:
            sys.exit(f"the shipped offers of {', '.join(stale)} are not those of {snapshots[-1].name}")
        sys.stdout.write(f"the shipped offers are those of {snapshots[-1].name}\n")
        return
    for file, text in files.values():
        file.write_text(text, "utf-8")
    sys.stdout.write(_summary(snapshots[-1].name, len(rows), conversion))


def _text(offers: Iterable[Offer]) -> str:
    """The offers as they are shipped."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(OFFER_COLUMNS)
    writer.writerows(offer_fields(offer) for offer in offers)
    return lines.getvalue()


def _current(provider: Provider) -> OfferFile:
    current = [listed for listed in provider.offer_files if not listed.historical]
    if len(current) != 1:
        sys.exit(f"{provider.id}: provider.toml must list exactly one file of current offers")
    return current[0]


def _summary(name: str, rows: int, conversion: Conversion) -> str:
    counts = Counter(offer.provider for offer in conversion.offers)
    skipped = sum(skip.rows for skip in conversion.skipped)
    lines = [
        f"{name}: {rows} rows, {len(conversion.offers)} offers of {len(counts)} clouds",
        *(f"  {cloud}: {count}" for cloud, count in sorted(counts.items())),
        f"{skipped} rows skipped",
        *(f"  {skip.cloud} {skip.accelerator}: {skip.reason} ({skip.rows})" for skip in conversion.skipped),
        f"{len(conversion.outliers)} prices not believed",
        *(f"  {outlier}" for outlier in conversion.outliers),
        f"{conversion.spot_prices_dropped} spot prices dropped: no lower than on demand",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
