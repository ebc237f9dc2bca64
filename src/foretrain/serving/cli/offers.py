"""`foretrain offers`: what machines cost to rent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, TEXT, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OffersRequest
from foretrain.serving.requests.groups import PRICES

if TYPE_CHECKING:
    from foretrain.facts.offers import Offer
    from foretrain.facts.price_import import ImportReport


@dataclass(frozen=True, kw_only=True)
class OffersOutput(Output):
    """What `offers` does besides listing."""

    refresh: Path | None = option(FILE, "Import a newer price file (CSV in SkyPilot's layout).", panel=PRICES)
    as_of: str | None = option(
        TEXT, "Date of that file, if its name has none.", metavar="YYYY-MM-DD", panel=PRICES
    )


def run(request: OffersRequest, output: OffersOutput) -> None:
    """List offers, or import a file of newer ones."""
    from foretrain.errors import InvalidRequest
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_json, print_line
    from foretrain.serving.wording import as_flags, sentence

    if output.refresh is not None:
        _refresh(output.refresh, output.as_of, output.json)
        return
    if output.as_of is not None:
        raise InvalidRequest("--as-of is the date of --refresh FILE: give that too")
    listed = verbs.offers(request)
    if output.json:
        print_json(listed)
    elif listed:
        _show(listed, request.spot)
    else:
        print_line(sentence(as_flags(verbs.contradicting_filters(request))))


COMMAND = Command(
    OffersRequest,
    OffersOutput,
    run,
    examples=(
        "foretrain offers --gpu h100 --count 8 --sort price --cloud aws,gcp --spot",
        "foretrain offers --refresh prices_2026_09.csv",
    ),
)


def _show(offers: tuple[Offer, ...], spot: bool) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bytes, format_money

    shown = [
        (Column("cloud", style="bold"), [offer.provider for offer in offers]),
        (Column("instance", least=20), [offer.instance or "-" for offer in offers]),
        (Column("devices"), [f"{offer.count} x {offer.device or offer.family + '?'}" for offer in offers]),
        (
            Column("vCPU", right=True, expendable=3),
            [_or_dash(offer.vcpus, "{:g}".format) for offer in offers],
        ),
        (
            Column("memory", right=True, expendable=4),
            [_or_dash(offer.memory_bytes, format_bytes) for offer in offers],
        ),
        (
            Column("spot $/h" if spot else "$/h", right=True),
            [format_money(offer.price(spot)) for offer in offers],
        ),
        (Column("each", right=True), [format_money(offer.price(spot) / offer.count) for offer in offers]),
        (Column("region", least=15, expendable=1), [offer.region for offer in offers]),
        (Column("as of"), [offer.as_of for offer in offers]),
    ]
    if not spot:
        spots = [_or_dash(offer.spot_usd_per_hour, format_money) for offer in offers]
        shown.insert(7, (Column("spot $/h", right=True, expendable=2), spots))
    print_table([column for column, _ in shown], list(zip(*(cells for _, cells in shown), strict=True)))
    clouds = len({offer.provider for offer in offers})
    print_line(
        f"{len(offers)} offers of {clouds} providers. Prices are of the date shown; each = per device."
    )
    if any(offer.device is None for offer in offers):
        print_line("? = the provider does not say which variant of the family.")
    print_line("Where a price comes from: foretrain explain CLOUD:INSTANCE")


def _or_dash(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def _refresh(file: Path, as_of: str | None, json: bool) -> None:
    from foretrain.errors import InvalidRequest
    from foretrain.facts.price_import import import_prices
    from foretrain.serving.cli.terminal import print_json

    try:
        day = None if as_of is None else date.fromisoformat(as_of)
    except ValueError:
        raise InvalidRequest(f"--as-of is {as_of!r}; it must be a date such as 2026-09-30") from None
    report = import_prices(file, day)
    if json:
        print_json(report)
    else:
        _show_report(report)


def _show_report(report: ImportReport) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    taken = sum(number for _, number in report.offers_by_cloud)
    print_line(f"Imported {taken} offers of {report.as_of} from {report.rows} rows of {report.file}", "bold")
    print_table(
        [Column("cloud"), Column("offers", right=True)],
        [(cloud, str(number)) for cloud, number in report.offers_by_cloud],
    )
    if report.older:
        print_line(f"Not taken, older than what is known: {', '.join(report.older)}")
    if report.outliers:
        print_line(f"Dropped {len(report.outliers)} prices far from the market (see the rule in the docs)")
    if report.spot_prices_dropped:
        print_line(f"Dropped {report.spot_prices_dropped} spot prices above the on-demand price")
    for skipped in report.skipped:
        print_line(
            f"Skipped {skipped.rows} rows of {skipped.cloud} {skipped.accelerator!r}: {skipped.reason}"
        )
