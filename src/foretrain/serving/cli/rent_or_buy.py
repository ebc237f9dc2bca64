"""`foretrain rent-or-buy`: after how many hours of use does owning a machine win?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrain.serving.cli.parameters import Json, complete_device, duration, money

if TYPE_CHECKING:
    from foretrain.planning.rent_or_buy import RentOrBuy

Price = Annotated[
    float,
    typer.Option("--price", parser=money, metavar="USD", help="What the machine costs to buy, e.g. 8000."),
]
Rent = Annotated[
    float | None,
    typer.Option("--rent", parser=money, metavar="USD", help="What renting costs an hour, e.g. 1.50."),
]
Offer = Annotated[
    str | None, typer.Option("--offer", help="Rent this cloud offer instead, e.g. lambda:gpu_8x_h100_sxm5.")
]
Performance = Annotated[
    float,
    typer.Option(
        "--relative-performance", help="Work of a rented hour against an owned one; 0.7 = 30 % less."
    ),
]
HoursPerYear = Annotated[
    float | None, typer.Option("--hours-per-year", help="Use of the owned machine; 2,000 is full time.")
]
Utilisation = Annotated[
    float | None, typer.Option("--utilisation", help="The same as a share of all 8,760 hours, e.g. 0.5.")
]
Watts = Annotated[float | None, typer.Option("--watts", help="Power draw of the owned machine in use.")]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", autocompletion=complete_device, help="Take the power from the TDP of DEVICE:COUNT."
    ),
]
UsdPerKwh = Annotated[
    float, typer.Option("--usd-per-kwh", parser=money, metavar="USD", help="Price of electricity.")
]
Pue = Annotated[float, typer.Option("--pue", help="Total over IT power of the room; 1 = no cooling.")]
Hosting = Annotated[
    float, typer.Option("--hosting", parser=money, metavar="USD", help="Rack, network, repairs: USD a year.")
]
Resale = Annotated[
    float, typer.Option("--resale", parser=money, metavar="USD", help="What the machine brings when sold.")
]
ResaleAfter = Annotated[
    float,
    typer.Option("--resale-after", parser=duration, metavar="DURATION", help="When it is sold, e.g. 3y."),
]
Discount = Annotated[float, typer.Option("--discount-rate", help="Yearly cost of capital, e.g. 0.08.")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the costs into this .png or .svg file.")]


def rent_or_buy(
    price: Price,
    rent: Rent = None,
    offer: Offer = None,
    relative_performance: Performance = 1.0,
    hours_per_year: HoursPerYear = None,
    utilisation: Utilisation = None,
    watts: Watts = None,
    device: DeviceOption = None,
    usd_per_kwh: UsdPerKwh = 0.0,
    pue: Pue = 1.0,
    hosting: Hosting = 0.0,
    resale: Resale = 0.0,
    resale_after: ResaleAfter = 0.0,
    discount_rate: Discount = 0.0,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Rent or buy: after how many hours of use does owning win?

    \b
    Examples:
      foretrain rent-or-buy --price 8000 --rent 1.50 --relative-performance 0.7
      foretrain rent-or-buy --price 250k$ --offer aws:p4d.24xlarge --plot costs.png
    """
    from foretrain.planning import rent_or_buy as core
    from foretrain.serving.cli.terminal import print_json
    from foretrain.units import YEAR

    request = core.RentOrBuyRequest(
        price_usd=price,
        rent_usd_per_hour=core.hourly_rent(rent, offer),
        relative_performance=relative_performance,
        hours_per_year=core.hours_of_use(hours_per_year, utilisation),
        watts=core.power_draw(watts, device),
        usd_per_kwh=usd_per_kwh,
        pue=pue,
        hosting_usd_per_year=hosting,
        resale_usd=resale,
        resale_after_years=resale_after / YEAR,
        discount_rate=discount_rate,
    )
    answer = core.rent_or_buy(request)
    if plot is not None:
        from foretrain.serving.plots import draw_rent_or_buy

        draw_rent_or_buy(answer, plot)
    if json:
        print_json(answer)
    else:
        _show(answer, plot)


def _show(answer: RentOrBuy, plot: Path | None) -> None:
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
