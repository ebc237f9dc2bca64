"""The buyer's guide as a page: what it says, and that a real browser shows it whole and asks for nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.browser import FONTS, opened_browser

from foretrain.planning.guide.cells import machines_named
from foretrain.planning.guide.guide import Guide, GuideProblem, guide
from foretrain.serving.rendering.html import document
from foretrain.serving.views import report_of
from foretrain.serving.views.guide import NAMES, best_cells, faces, value, written
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of


@pytest.fixture
def small() -> Guide:
    """A CPU, GPUs with and without a price, a batch that does not share out."""
    machines = machines_named(("epyc-7742", "t4", "t4:2", "t4:3", "gtx1080ti"))
    models = tuple(workload_of(WorkloadRequest(name)) for name in ("mnist-cnn", "voice-linear"))
    return guide(GuideProblem(models, machines, (32, 96, 256), samples=60_000))


def test_sections_tables_and_reasons(small: Guide) -> None:
    page = document(report_of(small), "foretrain guide", "foretrain guide mnist-cnn", "2026-11-16")
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == ["mnist-cnn", "voice-linear", "Machines and prices", "Notes"]
    assert page.count('<table class="heat') == 2 * 6
    for expected in (
        "a batch of 32 does not divide evenly over 3 devices; 33 does", "no current offer for this machine",
        "<code>foretrain guide mnist-cnn</code>", "2026-11-16", small.models[1].summary.verdict,
    ):  # fmt: skip
        assert expected.lower() in page.lower(), expected


def test_the_fastest_of_each_batch_is_outlined(small: Guide) -> None:
    (time,) = faces(small, ("time",))
    for model in small.models:
        best = best_cells(time, model)
        assert {batch for _, batch in best} == set(small.batches)
        for machine, batch in best:
            column = small.batches.index(batch)
            cells = [row[column] for row in model.cells if row[column].figures]
            fastest = model.cells[machine][column]
            others = [value(time, cell) for cell in cells if cell.figures and not cell.figures.is_bound]
            assert value(time, fastest) == pytest.approx(min(filter(None, others)), rel=0.01)


def test_what_stands_in_the_cells(small: Guide) -> None:
    model = small.models[0]
    bound, one, two, three, unpriced = (row[0] for row in model.cells)
    shown = {view.name: view for view in faces(small, NAMES)}
    assert written(shown["time"], bound).startswith(">")
    assert written(shown["throughput"], bound).startswith("<")
    assert written(shown["verdict"], bound) == "CPU"
    assert written(shown["speedup"], one) == written(shown["value"], one) == "1.00"
    assert written(shown["transfer"], two).endswith("GiB")
    assert {written(view, three) for view in shown.values()} == {"-"}
    assert written(shown["cost"], unpriced) == "no price"


def test_costs_of_a_table_have_three_digits_each(small: Guide) -> None:
    (cost,) = faces(small, ("cost",))
    texts = [written(cost, cell) for row in small.models[0].cells for cell in row]
    priced = [text.removeprefix("$") for text in texts if text.startswith("$")]
    assert priced
    assert {len(text.replace(".", "").lstrip("0")) for text in priced} == {3}


def test_tiny_costs_are_shown_for_a_thousand_epochs(small: Guide) -> None:
    (cost,) = faces(small, ("cost",))
    figures = small.models[0].cells[1][2].figures
    assert figures is not None and figures.usd_per_epoch is not None
    assert figures.usd_per_epoch.p50 < 1e-4
    assert cost.title == "Cost of 1,000 epochs of 60,000 samples"
    assert cost.value(figures) == pytest.approx(1000 * figures.usd_per_epoch.p50)


def test_a_browser_shows_it_whole_and_asks_for_nothing(small: Guide, tmp_path: Path) -> None:
    file = tmp_path / "guide.html"
    file.write_text(document(report_of(small)), encoding="utf-8")
    wide_tables = "[...document.querySelectorAll('.scroll')].filter((b) => b.scrollWidth > b.clientWidth + 1)"
    with opened_browser() as tab:
        for font in FONTS:
            tab.open(file)
            tab.use_font(font)
            for width, media in ((1280, ""), (800, ""), (400, ""), (700, "print")):
                tab.show(width, media=media)
                assert tab.evaluate("document.documentElement.scrollWidth") == width, font
                assert width < 700 or tab.evaluate(f"{wide_tables}.length") == 0, font
            assert tab.complaints() == []
            assert tab.requests() == [file.resolve().as_uri()]
