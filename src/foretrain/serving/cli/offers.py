"""`foretrain offers`: what machines cost to rent."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from foretrain.decoding import FILE, TEXT, option
from foretrain.panels import PRICES
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OffersRequest


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
    from foretrain.serving.cli.terminal import print_json, print_line, print_page
    from foretrain.serving.views.facts import offers_page
    from foretrain.serving.views.wording import as_flags, sentence

    if output.refresh is not None:
        _refresh(output.refresh, output.as_of, output.json)
        return
    if output.as_of is not None:
        raise InvalidRequest("--as-of is the date of --refresh FILE: give that too")
    listed = verbs.offers(request)
    if output.json:
        print_json(listed)
    elif listed:
        print_page(offers_page(listed, request.spot))
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


def _refresh(file: Path, as_of: str | None, json: bool) -> None:
    from foretrain.errors import InvalidRequest
    from foretrain.facts.price_import import import_prices
    from foretrain.serving.cli.terminal import print_json, print_page
    from foretrain.serving.views.facts import price_import_page

    try:
        day = None if as_of is None else date.fromisoformat(as_of)
    except ValueError:
        raise InvalidRequest(f"--as-of is {as_of!r}; it must be a date such as 2026-09-30") from None
    report = import_prices(file, day)
    if json:
        print_json(report)
    else:
        print_page(price_import_page(report))
