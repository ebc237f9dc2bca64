"""Heat maps: shades by hand, a number in every cell or the reason why not, and text one can read."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.drawings import of_class, parsed, text_of

from foretrain.serving.rendering.html import document
from foretrain.serving.views.blocks import SHADES, Cell, Column, Page, Row, Table, shade


def heat_map(*rows: tuple[Cell, ...]) -> Any:
    """The header of a page that shows nothing but a shaded table."""
    columns = [Column("batch"), *(Column(str(32 * 2**place), right=True) for place in range(len(rows[0])))]
    named: list[Row] = [(f"machine {number}", *row) for number, row in enumerate(rows)]
    made = document(Page.of("Steps", [Table(columns, named, "Seconds of a step", shade="seconds")]))
    return parsed(made[made.index("<header>") : made.index("</header>") + len("</header>")])


def cell(value: float) -> Cell:
    return Cell(f"{value:g} s", value, tip=f"exactly {value}")


def test_shades_by_hand() -> None:
    even = [0.0, 4.0, 9.0]
    assert [shade(value, even) for value in even] == [0, 4, 8]
    wide = [1.0, 100.0, 10_000.0]  # by the logarithm: the middle is in the middle
    assert [shade(value, wide) for value in wide] == [0, 4, 8]
    assert shade(3.0, [3.0, 3.0]) == 0


@given(st.lists(st.floats(1e-6, 1e9), min_size=1))
def test_more_is_never_paler(values: list[float]) -> None:
    shades = [shade(value, values) for value in sorted(values)]
    assert shades == sorted(shades)
    assert shades[0] >= 0
    assert shades[-1] < SHADES


def test_every_cell_has_its_number_or_a_reason() -> None:
    missing = Cell("-", tip="does not fit into memory")
    tree = heat_map((cell(1), cell(2)), (missing, Cell("no price", tip="no offer")))
    cells = [text_of(td) for td in tree.iter("td")]
    assert cells == ["1 s", "2 s", "-a", "no priceb"]
    (reasons,) = of_class(tree, "reasons")
    assert [text_of(entry) for entry in reasons] == ["a does not fit into memory", "b no offer"]
    assert [td.get("title") for td in tree.iter("td")] == [
        "exactly 1", "exactly 2", "does not fit into memory", "no offer",
    ]  # fmt: skip


def test_one_reason_has_one_letter() -> None:
    missing = Cell("-", tip="does not fit")
    tree = heat_map((missing, missing, cell(1)))
    assert len(of_class(tree, "reasons")[0]) == 1


def test_rows_columns_and_scale_are_named() -> None:
    tree = heat_map((cell(1), cell(8)), (cell(2), cell(4)))
    heads = [(text_of(th), th.get("scope")) for th in tree.iter("th")]
    assert heads == [
        ("batch", "col"), ("32", "col"), ("64", "col"),
        ("machine 0", "row"), ("machine 1", "row"),
    ]  # fmt: skip
    assert text_of(of_class(tree, "scale")[0]) == "seconds: 1 s  8 s"


def test_a_map_of_nothing_still_shows_the_reason() -> None:
    tree = heat_map((Cell("-", tip="no GPU"),))
    assert not of_class(tree, "scale")
    assert "no GPU" in text_of(tree)


@pytest.mark.parametrize("number", range(SHADES))
def test_text_can_be_read_on_every_shade_and_shades_grow_darker(number: int) -> None:
    style = files("foretrain.serving.rendering").joinpath("page.css").read_text()
    shades = [background(style, place) for place in range(SHADES)]
    assert shades == sorted(shades, reverse=True)
    is_light_text = re.search(rf"\.heat \.h{number}[ ,]", style) is not None
    text = 1.0 if is_light_text else luminance("10151c")
    darker, lighter = sorted((text, shades[number]))
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def background(style: str, number: int) -> float:
    found = re.search(rf"\.h{number} {{ background: #(\w{{6}}); }}", style)
    assert found is not None
    return luminance(found.group(1))


def luminance(colour: str) -> float:
    """Relative luminance of sRGB, as WCAG defines it."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
