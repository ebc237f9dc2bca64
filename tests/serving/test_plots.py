"""Charts as files: valid, reproducible, refused where they cannot be drawn."""

import builtins
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from foretrain.errors import InvalidRequest, MissingData
from foretrain.planning.rent_or_buy import RentOrBuy, RentOrBuyRequest, rent_or_buy
from foretrain.serving.plots import draw_rent_or_buy


@pytest.fixture
def answer() -> RentOrBuy:
    return rent_or_buy(RentOrBuyRequest(price_usd=8000, rent_usd_per_hour=1.5))


def test_png(answer: RentOrBuy, tmp_path: Path) -> None:
    file = tmp_path / "costs.PNG"
    draw_rent_or_buy(answer, file)
    drawn = file.read_bytes()
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(drawn[start : start + 4], "big") for start in (16, 20))
    assert (width, height) == (1080, 630)  # 7.2 x 4.2 inches at 150 dots


def test_svg_is_valid_and_the_same_each_time(answer: RentOrBuy, tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    draw_rent_or_buy(answer, first)
    draw_rent_or_buy(answer, second)
    assert ElementTree.parse(first).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert first.read_bytes() == second.read_bytes()


def test_pdf(answer: RentOrBuy, tmp_path: Path) -> None:
    draw_rent_or_buy(answer, tmp_path / "costs.pdf")
    assert (tmp_path / "costs.pdf").read_bytes().startswith(b"%PDF-")


def test_a_machine_that_never_pays_is_drawn_too(tmp_path: Path) -> None:
    never = rent_or_buy(RentOrBuyRequest(price_usd=1, rent_usd_per_hour=0.1, hosting_usd_per_year=10_000))
    assert never.break_even_hours is None
    draw_rent_or_buy(never, tmp_path / "never.svg")
    assert (tmp_path / "never.svg").exists()


@pytest.mark.parametrize("name", ["costs.gif", "costs", "costs.txt"])
def test_unknown_formats_are_refused(answer: RentOrBuy, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"end the name in \.png, \.svg, \.pdf"):
        draw_rent_or_buy(answer, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(answer: RentOrBuy, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no folder .*nowhere"):
        draw_rent_or_buy(answer, tmp_path / "nowhere" / "costs.png")


def test_without_matplotlib_the_extra_is_named(
    answer: RentOrBuy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without_matplotlib(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(MissingData, match=r"foretrain\[report\]"):
        draw_rent_or_buy(answer, tmp_path / "costs.png")
