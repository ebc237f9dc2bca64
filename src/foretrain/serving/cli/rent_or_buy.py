"""`foretrain rent-or-buy`: after how many hours of use does owning a machine win?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.decoding import FILE, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import OUTPUT, RentOrBuyRequest

if TYPE_CHECKING:
    from foretrain.planning.rent_or_buy import RentOrBuy


@dataclass(frozen=True, kw_only=True)
class RentOrBuyOutput(Output):
    """What `rent-or-buy` prints and draws."""

    plot: Path | None = option(FILE, "Draw the costs into this .png or .svg file.", panel=OUTPUT)


def run(request: RentOrBuyRequest, output: RentOrBuyOutput) -> None:
    """Compare, draw if asked for, and print."""
    from foretrain.serving import verbs
    from foretrain.serving.cli.terminal import print_json

    answer = verbs.rent_or_buy(request)
    if output.plot is not None:
        from foretrain.serving.plots import draw_rent_or_buy

        draw_rent_or_buy(answer, output.plot)
    if output.json:
        print_json(answer.to_dict())
    else:
        show(answer, output.plot)


COMMAND = Command(
    RentOrBuyRequest,
    RentOrBuyOutput,
    run,
    examples=(
        "foretrain rent-or-buy --price 8000 --rent 1.50 --relative-performance 0.7",
        "foretrain rent-or-buy --price 250k$ --offer aws:p4d.24xlarge --plot costs.png",
    ),
)


def show(answer: RentOrBuy, plot: Path | None = None) -> None:
    """Print when owning costs less; `plot` is the file that was drawn."""
    from foretrain.serving.cli.terminal import Column, print_curves, print_line, print_table
    from foretrain.units import format_money

    request = answer.request
    print_line(
        f"Break-even: {_hours(answer.break_even_hours)} of use, {_years(answer.break_even_years, ' years')}",
        "bold",
    )
    print_line(f"Verdict:    {answer.verdict}")
    print_line()
    facts = [
        ("machine", format_money(request.price_usd)),
        ("net of resale, discounted", format_money(answer.net_price_usd)),
        ("rent of an hour", format_money(request.rent_usd_per_hour)),
        ("rent of the work of an owned hour", format_money(answer.rent_usd_per_owned_hour)),
        ("electricity of an owned hour", format_money(answer.electricity_usd_per_hour)),
        ("hosting a year", format_money(request.hosting_usd_per_year)),
    ]
    print_table([Column("what"), Column("USD", right=True)], facts)
    print_line()
    print_table(
        [Column(name, right=True) for name in ("utilisation", "h/year", "break-even", "years")],
        [
            (f"{row.utilisation:.0%}", f"{row.hours_per_year:,.0f}", _hours(row.hours), _years(row.years))
            for row in answer.by_utilisation
        ],
        title="By utilisation (share of all 8,760 hours of a year)",
    )  # fmt: skip
    print_curves(
        "Cumulative cost", "hours of use", "USD", answer.curves.hours,
        {"own": answer.curves.own_usd, "rent": answer.curves.rent_usd},
    )  # fmt: skip
    if plot is not None:
        print_line(f"Plot: {plot}")


def _hours(hours: float | None) -> str:
    return "never" if hours is None else f"{hours:,.0f} h"


def _years(years: float | None, unit: str = "") -> str:
    return "never" if years is None else f"{years:,.2f}{unit}"
