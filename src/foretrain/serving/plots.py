"""Charts as files. Each draws an info object that the core computed; nothing is calculated here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest, MissingData

if TYPE_CHECKING:
    from foretrain.planning.rent_or_buy import RentOrBuy

FORMATS = (".png", ".svg", ".pdf")


def draw_rent_or_buy(answer: RentOrBuy, path: Path) -> None:
    """Cumulative cost of owning and of renting against hours of use, with the break-even marked."""
    _check_format(path)
    figure, axes = _figure()
    curves = answer.curves
    axes.plot(curves.hours, curves.own_usd, label="own", linewidth=2)
    axes.plot(curves.hours, curves.rent_usd, label="rent", linewidth=2)
    if answer.break_even_hours is not None:
        axes.axvline(answer.break_even_hours, color="0.5", linestyle=":", linewidth=1)
        axes.annotate(
            f"{answer.break_even_hours:,.0f} h",
            (answer.break_even_hours, 0),
            xytext=(6, 8),
            textcoords="offset points",
        )
    axes.set(xlabel="hours of use", ylabel="cumulative cost, USD", title="Rent or buy")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("${x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _save(figure, path)


def _check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise InvalidRequest(f"cannot draw into {path.name!r}: end the name in {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise InvalidRequest(f"cannot draw into {path}: there is no folder {path.parent}")


def _figure() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingData("drawing plots needs matplotlib: pip install 'foretrain[report]'") from error
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    """Write the figure; the same figure always gives the same SVG, so that charts can be kept in git."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "foretrain"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
