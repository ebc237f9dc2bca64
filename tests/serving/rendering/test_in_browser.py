"""A report in a real browser without a network: nothing overflows, overlaps, complains or is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.scheduling.test_charts import two_jobs
from tests.support.browser import FONTS, WIDE, Font, Tab, opened_browser
from tests.support.frontiers import example

from foretrain.serving.rendering.html import document
from foretrain.serving.views import report_of
from foretrain.serving.views.blocks import Cell, Column, Page, Row, Table
from foretrain.serving.views.schedule_charts import schedule_chart
from foretrain.serving.views.vega import text_width
from foretrain.units import HOUR

MACHINES = ("aws:p4d.24xlarge", "azure:Standard_NV36ads_A10_v5")
WIDTHS = (1280, 1200, 800, 400)
WIDE_ENOUGH = 800
"""From this width on no table needs to be scrolled."""
SCROLLED = """
[...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => box.textContent.slice(0, 40) + ": " + box.scrollWidth + " of " + box.clientWidth)
"""
TEXTS = """
[...document.querySelectorAll("svg text")].filter((text) => text.getClientRects().length).map((text) =>
  [text.textContent, Number(getComputedStyle(text).fontWeight) > 500,
   parseFloat(getComputedStyle(text).fontSize), text.getComputedTextLength()])
"""
FONT = pytest.mark.parametrize("font", FONTS, ids=lambda font: font.name)
OVERLAPS = """
(() => {
  const shown = [...document.querySelectorAll("svg text")].filter((text) => text.getClientRects().length);
  const boxes = shown.map((text) => [text.textContent, text.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([one, a], place) => boxes.slice(place + 1).forEach(([other, b]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    const isHalo = one == other && Math.abs(a.left - b.left) < 1 && Math.abs(a.top - b.top) < 1;
    if (wide > 1 && high > 3 && !isHalo) found.push(one + " / " + other);
  }));
  const limit = document.documentElement.clientWidth + 1;
  boxes.forEach(([one, a]) => { if (a.left < -1 || a.right > limit) found.push(one + " leaves the page"); });
  return [boxes.length, found];
})()
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan with everything in it, and the charts a plan does not need."""
    made = document(
        report_of(example(deadline_seconds=HOUR, budget_usd=30.0)),
        "foretrain plan",
        "foretrain plan mnist-cnn --samples 60000 --epochs 30000 --deadline 1h --html report.html",
        "2026-11-16",
    )
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(made, encoding="utf-8")
    return file


def check_layout(tab: Tab, width: int) -> int:
    """Nothing is wider than the window, clipped or overlapping; returns the number of texts in charts."""
    tab.show(width)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    if width >= WIDE_ENOUGH:
        assert tab.evaluate(SCROLLED) == []
    count, overlapping = tab.evaluate(OVERLAPS)
    assert overlapping == []
    return int(count)


@FONT
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows_or_overlaps(tab: Tab, report: Path, width: int, font: Font) -> None:
    tab.open(report)
    tab.use_font(font)
    assert check_layout(tab, width) > 15


@pytest.mark.parametrize("width", [1280, 400])
def test_texts_of_charts_have_the_room_reserved_for_them(tab: Tab, report: Path, width: int) -> None:
    tab.open(report)
    tab.use_font(WIDE)
    tab.show(width)
    measured = tab.evaluate(TEXTS)
    assert len(measured) > 15
    for text, is_bold, size, pixels in measured:
        assert pixels <= text_width(text, size, is_bold=is_bold), text


def test_a_font_that_is_missing_is_no_reason_to_skip(tab: Tab, report: Path) -> None:
    tab.open(report)
    with pytest.raises(AssertionError, match=r"install_test_tools\.sh"):
        tab.use_font(Font("missing", "No Such Font"))


def test_it_asks_for_nothing_and_complains_of_nothing(tab: Tab, report: Path) -> None:
    tab.open(report)
    assert tab.complaints() == []
    assert tab.requests() == [report.resolve().as_uri()]


def test_screenshots_differ_between_light_and_dark(tab: Tab, report: Path) -> None:
    tab.open(report)
    background = "getComputedStyle(document.body).backgroundColor"
    for width in (1280, 400):
        colours = []
        for dark in (False, True):
            tab.show(width, dark=dark)
            colours.append(tab.evaluate(background))
            picture = tab.screenshot()
            assert picture.startswith(b"\x89PNG")
            assert len(picture) > 50_000
        assert colours[0] != colours[1]


@FONT
def test_it_prints_in_light_on_a_few_pages(tab: Tab, report: Path, font: Font) -> None:
    tab.open(report)
    tab.use_font(font)
    colours = "[document.body, document.querySelector('svg text')].map((e) => getComputedStyle(e))"
    tab.show(1280)
    light = tab.evaluate(f"{colours}.map((s) => [s.backgroundColor, s.color, s.fill])")
    tab.show(700, dark=True, media="print")
    assert tab.evaluate(f"{colours}.map((s) => [s.backgroundColor, s.color, s.fill])") == light
    assert tab.evaluate("document.documentElement.scrollWidth") == 700
    printed = tab.pdf()
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 3 <= pages <= 8


def test_tables_sort_by_a_click(tab: Tab, report: Path) -> None:
    tab.open(report)
    head = "[...document.querySelectorAll('.dense th button')].find((b) => b.textContent == 'cost')"
    cells = "[...document.querySelectorAll('.dense td[data-head=cost]')]"
    costs = f"{cells}.map((cell) => Number(cell.dataset.sort))"
    tab.evaluate(f"{head}.click()")
    rising = tab.evaluate(costs)
    tab.evaluate(f"{head}.click()")
    falling = tab.evaluate(costs)
    assert rising == sorted(rising)
    assert falling == rising[::-1]
    assert len(rising) > 2


def heat(columns: int) -> Table:
    """Times on two machines at batch sizes that double."""
    cells = tuple(
        Cell("-", tip="does not fit") if column > 6 else Cell(f"{2**column}m 59s*", 2.0**column)
        for column in range(columns)
    )
    batches = (Column(f"{32 * 2**column:,}", right=True) for column in range(columns))
    rows: list[Row] = [(name, *cells) for name in MACHINES]
    return Table([Column("batch"), *batches], rows, "Time of an epoch", shade="time")


@FONT
def test_the_other_charts_fit_too(tab: Tab, tmp_path: Path, font: Font) -> None:
    file = tmp_path / "charts.html"
    file.write_text(document(Page.of("Charts", [heat(9), schedule_chart(two_jobs())])), "utf-8")
    tab.open(file)
    tab.use_font(font)
    for width in WIDTHS:
        check_layout(tab, width)
    tab.show(700, media="print")
    assert tab.evaluate("document.documentElement.scrollWidth") == 700
    assert tab.complaints() == []


@FONT
def test_a_heat_map_of_many_columns_fits_on_paper(tab: Tab, tmp_path: Path, font: Font) -> None:
    file = tmp_path / "many.html"
    file.write_text(document(Page.of("Charts", [heat(16)])), "utf-8")
    tab.open(file)
    tab.use_font(font)
    tab.show(700, media="print")
    assert tab.evaluate("document.documentElement.scrollWidth") == 700


def test_a_browser_that_is_missing_is_no_reason_to_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssertionError, match=r"install_test_tools\.sh"), opened_browser():
        pass
