"""Charts: what each specification holds, files of every format, and pictures in a page."""

from __future__ import annotations

import builtins
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.scheduling.test_charts import two_jobs
from tests.support.drawings import charts, check_drawing, labels, text_of, texts
from tests.support.frontiers import example

from foretrain.errors import InvalidRequest, MissingData
from foretrain.estimates import Quantiles
from foretrain.planning.frontier import Frontier, Plan
from foretrain.planning.rent_or_buy import RentOrBuy, RentOrBuyTerms, rent_or_buy
from foretrain.prediction.advice.scaling_curve import ScalingCurve, ScalingPoint
from foretrain.scheduling.generators import families
from foretrain.scheduling.policies import policies
from foretrain.scheduling.policies.rules import Fifo
from foretrain.scheduling.problem import NodeType, Problem, elastic
from foretrain.scheduling.simulation import simulate
from foretrain.serving.rendering import charts as rendering
from foretrain.serving.rendering.charts import VARIABLES, page_svgs, save_chart
from foretrain.serving.rendering.html import chart_figure
from foretrain.serving.views.blocks import Chart
from foretrain.serving.views.charts import cost_chart, front_chart, parts_chart, scaling_chart
from foretrain.serving.views.plan import machines_of
from foretrain.serving.views.schedule_charts import schedule_chart
from foretrain.serving.views.vega import PALETTE, Spec
from foretrain.units import HOUR


@pytest.fixture
def answer() -> RentOrBuy:
    return rent_or_buy(RentOrBuyTerms(price_usd=8000, rent_usd_per_hour=1.5))


def limited() -> Frontier:
    return example(deadline_seconds=HOUR, budget_usd=30.0)


def spec_of(chart: Chart, width: int = 640) -> Spec:
    assert chart.spec is not None
    return dict(chart.spec(width))


def layers(spec: Spec, mark: str) -> list[Spec]:
    """The layers of a mark."""
    return [layer for layer in spec["layer"] if layer["mark"]["type"] == mark]


def rows(layer: Spec) -> list[dict[str, Any]]:
    return list(layer["data"]["values"])


def wide(chart: Chart) -> ElementTree.Element:
    return charts(page_svgs(chart))[0]


# ---------------------------------------------------------------- plans


def dots(chart: Chart) -> dict[str, list[dict[str, Any]]]:
    """Points of a front by what they are."""
    (points,) = layers(spec_of(chart), "point")
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows(points):
        found.setdefault(row["kind"], []).append(row)
    return found


def test_a_front_holds_every_plan_and_the_numbers_of_the_table() -> None:
    frontier = limited()
    chart = front_chart(frontier, machines_of)
    found = dots(chart)
    assert len(found["chosen"]) == 1
    assert len(found["in two phases"]) == 1
    assert len(found["front: nothing is both faster and cheaper"]) == len(frontier.front) - 1
    assert sum(map(len, found.values())) == len(frontier.plans) + 1
    written = {row["text"].partition(" ")[0] for row in rows(layers(spec_of(chart, 800), "text")[-1])}
    assert {str(place) for place in range(1, len(frontier.front) + 1)} <= written


def test_the_line_of_a_front_goes_from_the_fastest_to_the_cheapest() -> None:
    frontier = limited()
    (line,) = layers(spec_of(front_chart(frontier, machines_of)), "line")
    seconds = [row["x"] for row in rows(line)]
    assert seconds == sorted(frontier.plans[index].seconds.p50 for index in frontier.front)


def test_limits_are_lines_with_names() -> None:
    drawing = wide(front_chart(limited(), machines_of))
    assert {"deadline 1h 00m", "budget $30.00"} <= {text for text, _ in texts(drawing)}
    none = wide(front_chart(example(), machines_of))
    assert not {"deadline", "budget"} & {text.partition(" ")[0] for text, _ in texts(none)}


def test_where_nothing_meets_the_limits_the_legend_says_so() -> None:
    missed = example(deadline_seconds=60.0, budget_usd=1.0)
    assert "nearest to the limits" in dots(front_chart(missed, machines_of))


def crowd(frontier: Frontier, plan: Plan, count: int) -> Frontier:
    """The frontier with some more plans that lost."""
    lost = frontier.reasons[next(i for i in range(len(frontier.plans)) if i not in frontier.front)]
    return replace(
        frontier, plans=(*frontier.plans, *[plan] * count), reasons=(*frontier.reasons, *[lost] * count)
    )


def test_thousands_of_others_are_drawn_as_few() -> None:
    frontier = limited()
    plan = next(plan for i, plan in enumerate(frontier.plans) if i not in frontier.front)
    chart = front_chart(crowd(frontier, plan, 5000), machines_of)
    assert len(dots(chart)["other plans"]) < 20
    assert any("5000 more here" in row["tip"] for row in dots(chart)["other plans"])
    assert len(page_svgs(chart)) < 80_000


def test_points_far_away_are_counted_not_drawn() -> None:
    frontier = limited()
    far = replace(frontier.plans[0], seconds=Quantiles(1e9, 1e9, 1e9))
    chart = front_chart(crowd(frontier, far, 3), machines_of)
    assert chart.caption == "Not drawn, far beyond the upper right: 3."
    before = front_chart(frontier, machines_of)
    assert len(dots(chart)["other plans"]) == len(dots(before)["other plans"])


# ---------------------------------------------------------------- parts of a whole


def bar(*values: float, **options: Any) -> Spec:
    parts = [(f"part {number}", value) for number, value in enumerate(values)]
    return spec_of(parts_chart("A job", "its parts", parts, lambda value: f"{value:g} s", **options))


def shares(spec: Spec) -> list[float]:
    """How much of the bar each part takes, in percent."""
    parts = layers(spec, "rect")[1]
    whole = parts["encoding"]["x"]["scale"]["domain"][1]
    return [100 * (row["end"] - row["start"]) / whole for row in rows(parts)]


def legend_of(spec: Spec) -> list[str]:
    return list(layers(spec, "rect")[1]["encoding"]["color"]["scale"]["domain"])


def test_parts_fill_the_bar() -> None:
    spec = bar(1, 2, 5)
    assert shares(spec) == [12.5, 25, 62.5]
    assert [text.replace("\xa0", " ") for text in legend_of(spec)] == [
        "part 0: 1 s, 12 %", "part 1: 2 s, 25 %", "part 2: 5 s, 62 %",
    ]  # fmt: skip


def test_parts_of_a_capacity_leave_room() -> None:
    spec = bar(1, 1, capacity=8)
    assert shares(spec) == [12.5, 12.5]
    assert layers(spec, "rule") == []


def test_what_does_not_fit_crosses_a_line() -> None:
    spec = bar(6, 4, capacity=8)
    (limit,) = layers(spec, "rule")
    assert rows(limit) == [{"start": 8}]
    assert limit["encoding"]["x"]["scale"]["domain"] == [0, 10]


def test_the_interval_may_end_beyond_the_parts() -> None:
    spec = bar(3, 1, ends=Quantiles(2, 4, 8))
    assert shares(spec) == [37.5, 12.5]
    assert rows(layers(spec, "rule")[0]) == [{"start": 2, "end": 8}]


def test_of_many_parts_the_smallest_are_one() -> None:
    spec = bar(*range(1, 13))
    assert len(shares(spec)) == len(PALETTE)
    assert sum(shares(spec)) == pytest.approx(100)
    assert legend_of(spec)[-1].startswith("5 others: 15 s")


def test_as_many_parts_as_colours_are_all_shown() -> None:
    assert not any("others" in name for name in legend_of(bar(*[1] * len(PALETTE))))


def test_what_is_nothing_takes_no_colour() -> None:
    assert len(shares(bar(1, 0, 2))) == 2


# ---------------------------------------------------------------- scaling


def scaling() -> ScalingCurve:
    """Half as efficient at eight devices, where the step does not fit."""
    points = [(1, 10.0, 1.0, True), (2, 18.0, 0.9, True), (8, 40.0, 0.5, False)]
    made = tuple(
        ScalingPoint(devices, "", 8, 1.0, speed, efficiency, 0.0, fits)
        for devices, speed, efficiency, fits in points
    )
    return ScalingCurve(made, is_batch_fixed=True, knee=2, best=2)


def test_perfect_scaling_is_a_dashed_line_without_points() -> None:
    chart = scaling_chart(scaling(), "a model")
    ideal, predicted = layers(spec_of(chart), "line")
    assert [(row["x"], row["y"]) for row in rows(ideal)] == [(1, 10), (8, 80)]
    assert "strokeDash" in ideal["mark"]
    assert "strokeDash" not in predicted["mark"]
    (points,) = layers(spec_of(chart), "point")
    assert [row["tip"].replace("\xa0", " ") for row in rows(points)] == [
        "1 GPUs: 10 samples/s, 100 % efficient",
        "2 GPUs: 18 samples/s, 90 % efficient",
        "8 GPUs: 40 samples/s, 50 % efficient; does not fit",
    ]
    fills = [row["fill"] for row in rows(points)]
    assert fills[0] == fills[1] != fills[2]
    assert chart.caption == "Hollow: does not fit into memory."
    assert [row["text"] for row in rows(layers(spec_of(chart), "text")[-1])] == ["most samples/s"]


# ---------------------------------------------------------------- schedules


def test_a_schedule_is_bars_over_lines_of_the_same_time() -> None:
    drawing = wide(schedule_chart(two_jobs()))
    spoken = [mark.get("aria-label") for mark in drawing.iter("path") if mark.get("aria-label")]
    assert spoken == ["a: 1 GPU on one, 0 us to 10.0 s", "b: 1 GPU on one, 10.0 s to 20.0 s, ends late"]
    written = [text for text, _ in texts(drawing)]
    assert {"node 0 · one", "a", "b", "GPUs", "jobs waiting", "cost so far"} <= set(written)
    assert written.count("10 s") == 1, "the axis of time is labelled once"


def test_a_schedule_without_jobs_says_so() -> None:
    node = NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)
    nothing = simulate(Problem((), elastic([node], max_nodes=1)), Fifo())
    assert "No job ran." in [text for text, _ in texts(wide(schedule_chart(nothing)))]


def test_names_of_jobs_stay_inside_their_bars() -> None:
    outcome = two_jobs()
    long = {"a": "a" * 200, "b": "b" * 200}
    renamed = replace(
        outcome,
        history=tuple(
            replace(row, shares=tuple((long[name], gpus) for name, gpus in row.shares))
            for row in outcome.history
        ),
        jobs=tuple(replace(job, job=long[job.job]) for job in outcome.jobs),
    )
    assert not set(long.values()) & {text for text, _ in texts(wide(schedule_chart(renamed)))}


# ---------------------------------------------------------------- every chart


def every_chart() -> dict[str, Chart]:
    prediction = example().prediction
    assert prediction is not None
    assert prediction.parallelism.scaling is not None
    problem = families()["mixed"].problem(nodes=3, seed=1)
    return {
        "front": front_chart(example(), machines_of),
        "front with limits": front_chart(limited(), machines_of),
        "cost": cost_chart(rent_or_buy(RentOrBuyTerms(price_usd=8000, rent_usd_per_hour=1.5))),
        "parts": parts_chart("A job", "", [(f"part {n}", n) for n in range(1, 12)], lambda n: f"{n:g} s"),
        "scaling": scaling_chart(prediction.parallelism.scaling),
        "two jobs": schedule_chart(two_jobs()),
        "many jobs": schedule_chart(simulate(problem, policies()["edf-packed"])),
    }


@pytest.mark.parametrize(
    "name", ["front", "front with limits", "cost", "parts", "scaling", "two jobs", "many jobs"]
)
def test_no_texts_overlap_at_any_width(name: str) -> None:
    for drawing in charts(page_svgs(every_chart()[name])):
        assert len(texts(drawing)) > 3
        check_drawing(drawing)


def expressions(content: Any, name: str = "") -> set[str]:
    """Properties of a specification that hold an expression."""
    if isinstance(content, dict):
        if set(content) == {"expr"}:
            return {name}
        return {found for key, value in content.items() for found in expressions(value, key)} | (
            {"labelExpr"} & set(content)
        )
    if isinstance(content, list):
        return {found for value in content for found in expressions(value, name)}
    return set()


def test_specifications_are_plain_data_with_few_expressions() -> None:
    """What a page with a strict content security policy can draw, with Vega's expression interpreter."""
    for chart in every_chart().values():
        spec = spec_of(chart)
        assert json.loads(json.dumps(spec, allow_nan=False)) is not None
        assert expressions(spec) <= {"labelExpr", "align", "dx", "dy", "fontWeight"}
        assert "url" not in json.dumps({**spec, "$schema": ""})


# ---------------------------------------------------------------- pictures in a page


def test_a_chart_is_drawn_wide_and_narrow_with_a_title_and_a_description(answer: RentOrBuy) -> None:
    chart = cost_chart(answer)
    drawings = charts(page_svgs(chart))
    assert [drawing.get("class") for drawing in drawings] == ["chart wide", "chart narrow"]
    for drawing in drawings:
        assert [text_of(child) for child in drawing][:2] == [chart.title, chart.description]
        assert drawing.get("role") == "graphics-document document"
        assert labels(drawing, "title-text") == [], "the page has the title above the chart"
    sizes = [float(drawing.get("viewBox", "").split()[2]) for drawing in drawings]
    assert sizes[1] < 375 < sizes[0] < 900


def test_every_colour_of_a_page_is_a_variable_of_its_style_sheet(answer: RentOrBuy) -> None:
    style = files("foretrain.serving.rendering").joinpath("page.css").read_text(encoding="utf-8")
    light, dark = style.split("prefers-color-scheme: dark", 1)
    for colour, variable in VARIABLES.items():
        assert f"{variable}: {colour};" in light
        assert f"{variable}: #" in dark
    svg = "".join(page_svgs(chart) for chart in (cost_chart(answer), front_chart(limited(), machines_of)))
    fixed = re.findall(r'(?:fill|stroke)="(#[^"]*|\w+)"', svg)
    assert set(fixed) <= {"none", "transparent"}


def test_marks_say_what_they_are_and_hostile_names_stay_text() -> None:
    hostile = "</title><script>alert('x')</script>\""
    chart = front_chart(limited(), lambda _: hostile)
    svg = page_svgs(chart)
    assert "<script" not in svg
    circles = [mark for mark in charts(svg)[0].iter("path") if mark.get("aria-roledescription") == "point"]
    assert len(circles) == len(limited().plans) + 1
    for mark in circles:
        assert text_of(mark) == (mark.get("aria-label") or "").replace("\xa0", " ")
    assert any(text_of(mark).startswith(hostile) for mark in circles)


def test_charts_of_one_page_share_no_ids() -> None:
    def clipped(x: float) -> Chart:
        mark = {"type": "point", "clip": True}
        data = {"values": [{"x": x}]}
        spec = {"data": data, "mark": mark, "encoding": {"x": {"field": "x", "type": "quantitative"}}}
        return Chart("Clipped", "", spec=lambda width: {**spec, "width": width})

    ids = [re.findall(' id="([^"]*)"', page_svgs(clipped(x))) for x in (1.0, 2.0)]
    assert len(ids[0]) == len(ids[1]) == 2
    assert len({*ids[0], *ids[1]}) == 4
    assert page_svgs(clipped(1.0)) == page_svgs(clipped(1.0))


def test_a_specification_cannot_fetch_anything() -> None:
    outside = {"data": {"url": "https://example.org/x.csv"}, "mark": "point"}
    with pytest.raises(Exception, match=r"(?i)denied|not allowed|External data"):
        page_svgs(Chart("Outside", "", spec=lambda _: outside))


def test_a_chart_without_a_specification_is_nothing() -> None:
    assert chart_figure(Chart("Nothing")) == ""


# ---------------------------------------------------------------- files


def test_png(answer: RentOrBuy, tmp_path: Path) -> None:
    file = tmp_path / "costs.PNG"
    save_chart(cost_chart(answer), file)
    drawn = file.read_bytes()
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(drawn[start : start + 4], "big") for start in (16, 20))
    assert 1300 < width < 1450
    assert 800 < height < 950


def test_svg_is_valid_and_the_same_each_time(answer: RentOrBuy, tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    save_chart(cost_chart(answer), first)
    save_chart(cost_chart(answer), second)
    assert ElementTree.parse(first).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert first.read_bytes() == second.read_bytes()


def test_pdf(answer: RentOrBuy, tmp_path: Path) -> None:
    save_chart(cost_chart(answer), tmp_path / "costs.pdf")
    assert (tmp_path / "costs.pdf").read_bytes().startswith(b"%PDF-")


def test_a_machine_that_never_pays_is_drawn_too(tmp_path: Path) -> None:
    never = rent_or_buy(RentOrBuyTerms(price_usd=1, rent_usd_per_hour=0.1, hosting_usd_per_year=10_000))
    assert never.break_even_hours is None
    save_chart(cost_chart(never), tmp_path / "never.svg")
    assert (tmp_path / "never.svg").exists()


@pytest.mark.parametrize("name", ["costs.gif", "costs", "costs.txt"])
def test_unknown_formats_are_refused(answer: RentOrBuy, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"end the name in \.png, \.svg, \.pdf"):
        save_chart(cost_chart(answer), tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_missing_folder_is_named(answer: RentOrBuy, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"there is no folder .*nowhere"):
        save_chart(cost_chart(answer), tmp_path / "nowhere" / "costs.png")


@pytest.fixture
def no_vl_convert(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("vl_convert"):
            raise ImportError(name)
        return real(name, *rest, **options)

    rendering._converter.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)


@pytest.mark.usefixtures("no_vl_convert")
def test_without_the_extra_a_file_names_it(answer: RentOrBuy, tmp_path: Path) -> None:
    with pytest.raises(MissingData, match=r"pip install 'foretrain\[report\]'"):
        save_chart(cost_chart(answer), tmp_path / "costs.png")


@pytest.mark.usefixtures("no_vl_convert")
def test_without_the_extra_a_page_says_what_the_chart_shows_and_what_is_missing(answer: RentOrBuy) -> None:
    figure = chart_figure(cost_chart(answer))
    assert "break even after 5,333 h of use. Not drawn: drawing charts needs vl-convert" in figure
    assert "foretrain[report]" in figure
