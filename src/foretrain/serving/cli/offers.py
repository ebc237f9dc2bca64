"""`foretrain offers`: what machines cost to rent."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrain.serving.cli.parameters import (
    Json,
    comma_separated,
    complete_device,
    complete_provider,
    money,
    region_names,
)

if TYPE_CHECKING:
    from foretrain.facts.offers import Offer
    from foretrain.facts.price_import import ImportReport

Gpu = Annotated[
    str | None,
    typer.Option("--gpu", help="A device, alias or family, e.g. h100.", autocompletion=complete_device),
]
Count = Annotated[int | None, typer.Option("--count", help="Devices in the machine.")]
Cloud = Annotated[
    str | None,
    typer.Option("--cloud", help="Only these providers, e.g. aws,gcp.", autocompletion=complete_provider),
]
Region = Annotated[str | None, typer.Option("--region", help="Only these regions, comma-separated.")]
Spot = Annotated[bool, typer.Option("--spot", help="Compare spot prices.")]
Historical = Annotated[bool, typer.Option("--historical", help="Also offers of the past.")]
MaxPrice = Annotated[
    float | None, typer.Option("--max-price", parser=money, metavar="USD", help="At most this much an hour.")
]
Sort = Annotated[str, typer.Option("--sort", help="price, price-per-gpu, cloud or gpu.")]
Limit = Annotated[int | None, typer.Option("--limit", help="At most this many rows.")]
AllRegions = Annotated[
    bool, typer.Option("--all-regions", help="Every region, not only the cheapest of each machine.")
]
Refresh = Annotated[
    Path | None, typer.Option("--refresh", help="Import a newer price file (CSV in SkyPilot's layout).")
]
AsOf = Annotated[
    datetime | None,
    typer.Option("--as-of", formats=["%Y-%m-%d"], help="Date of the file, if its name does not say."),
]


def offers(
    gpu: Gpu = None,
    count: Count = None,
    cloud: Cloud = None,
    region: Region = None,
    spot: Spot = False,
    historical: Historical = False,
    max_price: MaxPrice = None,
    sort: Sort = "price",
    limit: Limit = None,
    all_regions: AllRegions = False,
    refresh: Refresh = None,
    as_of: AsOf = None,
    json: Json = False,
) -> None:
    """List what machines cost to rent, every price with its date.

    \b
    Examples:
      foretrain offers --gpu h100 --count 8 --sort price --cloud aws,gcp --spot
      foretrain offers --refresh prices_2026_09.csv
    """
    from foretrain.facts.offers import OfferQuery, search
    from foretrain.serving.cli.terminal import print_json

    if refresh is not None:
        _refresh(refresh, as_of, json)
        return
    query = OfferQuery(
        gpu=gpu,
        count=count,
        clouds=comma_separated(cloud),
        regions=region_names(region),
        spot=spot,
        historical=historical,
        max_usd_per_hour=max_price,
        sort=sort,
        limit=limit,
        cheapest_region=not all_regions,
    )
    found = search(query)
    if json:
        print_json(found)
    else:
        _show(found, spot)


def _show(found: tuple[Offer, ...], spot: bool) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bytes, format_money

    if not found:
        print_line("No offer matches. Loosen a filter, or see the past with --historical.")
        return
    shown = [
        (Column("cloud", style="bold"), [offer.provider for offer in found]),
        (Column("instance", least=20), [offer.instance or "-" for offer in found]),
        (Column("devices"), [f"{offer.count} x {offer.device or offer.family + '?'}" for offer in found]),
        (Column("vCPU", right=True, expendable=3), [_or_dash(offer.vcpus, "{:g}".format) for offer in found]),
        (
            Column("memory", right=True, expendable=4),
            [_or_dash(offer.memory_bytes, format_bytes) for offer in found],
        ),
        (
            Column("spot $/h" if spot else "$/h", right=True),
            [format_money(offer.price(spot)) for offer in found],
        ),
        (Column("each", right=True), [format_money(offer.price(spot) / offer.count) for offer in found]),
        (Column("region", least=15, expendable=1), [offer.region for offer in found]),
        (Column("as of"), [offer.as_of for offer in found]),
    ]
    if not spot:
        spots = [_or_dash(offer.spot_usd_per_hour, format_money) for offer in found]
        shown.insert(7, (Column("spot $/h", right=True, expendable=2), spots))
    print_table([column for column, _ in shown], list(zip(*(cells for _, cells in shown), strict=True)))
    clouds = len({offer.provider for offer in found})
    print_line(f"{len(found)} offers of {clouds} providers. Prices are of the date shown; each = per device.")
    if any(offer.device is None for offer in found):
        print_line("? = the provider does not say which variant of the family.")
    print_line("Where a price comes from: foretrain explain CLOUD:INSTANCE")


def _or_dash(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def _refresh(file: Path, as_of: datetime | None, json: bool) -> None:
    from foretrain.facts.price_import import import_prices
    from foretrain.serving.cli.terminal import print_json

    report = import_prices(file, as_of.date() if as_of else None)
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
