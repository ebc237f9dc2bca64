"""The report of a plan: what it says, what it leaves out, and that hostile names stay text."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date, timedelta

import pytest
from tests.support.frontiers import example

from foretrain.planning.frontier import Exclusion, Frontier
from foretrain.planning.selection import Reason, Verdict
from foretrain.serving.rendering.html import document
from foretrain.serving.views import page_of, report_of
from foretrain.serving.views import plan_report as views
from foretrain.serving.views.blocks import Sentence
from foretrain.serving.views.plan import why_lost
from foretrain.units import HOUR, format_duration, format_money

HEADINGS = re.compile("<h2>(.*?)</h2>")


def limited() -> Frontier:
    return example(deadline_seconds=HOUR, budget_usd=30.0)


def plan_report(frontier: Frontier, command: str = "", made_on: str = "") -> str:
    return document(report_of(frontier), "foretrain plan", command, made_on)


def plan_page_of_day(frontier: Frontier, today: date) -> str:
    return text_of(document(views.plan_report(frontier, today), "foretrain plan"))


def text_of(report: str) -> str:
    """What is read, without styles and tags."""
    body = report.split("</style>")[1].split("<script>")[0]
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", body).replace("\u00a0", " "))


def test_the_sections_in_order() -> None:
    assert HEADINGS.findall(plan_report(limited())) == [
        "The choice",
        "In two phases",
        "Where the job&#39;s time goes",
        "Where a step&#39;s time goes",
        "Memory",
        "More or fewer GPUs",
        "Rent or buy",
        "What lost",
        "Excluded and limited",
        "Notes",
        "Sources",
    ]


def test_the_answer_comes_first() -> None:
    frontier = limited()
    plan = frontier.plans[frontier.reported]
    answer = text_of(plan_report(frontier)).split("The choice")[0]
    for expected in (
        f"Rent {plan.offer.provider}:{plan.offer.instance}",
        plan.hardware.device.id,
        plan.offer.region,
        format_duration(plan.seconds.p50),
        f"80 % between {format_duration(plan.seconds.p10)} and {format_duration(plan.seconds.p90)}",
        format_money(plan.usd.p50),
        "the deadline of 1h 00m and the budget of $30.00 with over 99 % probability",
    ):
        assert expected in answer


def test_the_report_names_the_rule_of_the_choice_and_the_next_ones_as_the_page_does() -> None:
    frontier = replace(example(deadline_seconds=HOUR), next_best=(3,))
    sentences = [block.text for block in page_of(frontier).blocks if isinstance(block, Sentence)]
    (rule,) = [text for text in sentences if text.startswith("It is the cheapest plan within the deadline; ")]
    assert rule in text_of(plan_report(frontier)).split("The choice")[0]


def test_the_report_warns_of_old_prices_from_thirty_days() -> None:
    frontier = example()
    as_of = date.fromisoformat(frontier.plans[frontier.reported].offer.as_of)
    fresh, old = (plan_page_of_day(frontier, as_of + timedelta(days=days)) for days in (29, 30))
    assert "Prices are as of" not in fresh
    assert f"Prices are as of {as_of}, 30 days ago or more" in old


def test_a_price_of_a_known_year_alone_is_old_from_the_next_year() -> None:
    frontier = example()
    plans = tuple(replace(plan, offer=replace(plan.offer, as_of="2019")) for plan in frontier.plans)
    dated = replace(frontier, plans=plans)
    assert "Prices are as of" not in plan_page_of_day(dated, date(2019, 12, 31))
    assert "Prices are as of 2019" in plan_page_of_day(dated, date(2020, 12, 31))


def test_every_plan_of_the_front_is_in_the_table_and_one_is_ticked() -> None:
    frontier = limited()
    report = plan_report(frontier)
    assert report.count("✓") == 1
    (table,) = re.findall('aria-label="Plans on the front">(.*?)</table>', report, re.DOTALL)
    for plan in frontier.on_front():
        assert plan.offer.instance in table.replace("<wbr>", "")
    assert table.count("<tr") == 1 + len(frontier.front)


def test_where_nothing_meets_the_limits_a_sentence_says_so_and_nothing_is_ticked() -> None:
    report = plan_report(example(deadline_seconds=60.0, budget_usd=1.0))
    assert "Nothing is expected to keep these limits. The nearest is" in text_of(report)
    assert "✓" not in report
    assert "nearest to the limits" in report


def test_without_limits_there_is_no_chance() -> None:
    text = text_of(plan_report(example()))
    assert "chance" not in text
    assert "probability." not in text.split("The choice")[0]


def test_without_a_prediction_in_full_the_job_is_still_shown() -> None:
    headings = HEADINGS.findall(plan_report(replace(limited(), prediction=None)))
    assert "Where the job&#39;s time goes" in headings
    assert "Memory" not in headings


def test_without_variants_there_are_no_sections_of_them() -> None:
    bare = replace(limited(), two_phases=None, job_stream=None, excluded=(), notes=())
    headings = HEADINGS.findall(plan_report(bare))
    assert not {"In two phases", "Rent or buy", "Excluded and limited"} & set(headings)


def test_command_and_date_are_shown() -> None:
    report = plan_report(limited(), "foretrain plan 'a b' --html r.html", "2026-11-16")
    assert "Made on 2026-11-16 by foretrain plan &#39;a b&#39; --html r.html" in text_of(report)


def test_prices_have_sources_and_dates() -> None:
    frontier = limited()
    report = plan_report(frontier)
    for plan in frontier.plans:
        assert plan.offer.as_of in report.split("<h2>Sources</h2>")[1]
    assert "SkyPilot" in report.split("<h2>Sources</h2>")[1]


def test_what_was_planned_on_one_node_is_limited_not_excluded() -> None:
    single = Exclusion("considered as single nodes only", 2, ("x:a",), is_partly=True)
    sets = Exclusion("the model does not fit into GPU memory", 3, ("1 × x:a", "2 × x:a"))
    text = text_of(plan_report(replace(limited(), excluded=(single, sets))))
    assert "limited 2 machine types considered as single nodes only x:a" in text
    assert "excluded 3 sets of machines the model does not fit" in text


def test_hostile_names_stay_text() -> None:
    hostile = "</td><script>alert('x')</script>\""
    frontier = limited()
    plans = tuple(
        replace(
            plan,
            offer=replace(plan.offer, instance=hostile, region=hostile, source=hostile, as_of=hostile),
            configuration=replace(plan.configuration, strategy=hostile),
        )
        for plan in frontier.plans
    )
    attacked = replace(
        frontier,
        model=hostile,
        plans=plans,
        notes=(hostile,),
        excluded=tuple(replace(one, reason=hostile, examples=(hostile,)) for one in frontier.excluded),
    )
    report = plan_report(attacked, command=hostile, made_on=hostile)
    assert report.count("<script>") == 1
    assert report.count("</script>") == 1
    assert "<script>alert" not in report
    assert report.count("&lt;script&gt;") > 20


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (Reason(1, Verdict.OVER_DEADLINE, 0, 3600.0, 0.0), "1h 00m over the deadline"),
        (
            Reason(1, Verdict.OVER_DEADLINE, 0, 3600.0, 5.0),
            "1h 00m over the deadline, and $5.00 over the budget",
        ),
        (Reason(1, Verdict.OVER_BUDGET, None, 0.0, 5.0), "$5.00 over the budget"),
        (Reason(1, Verdict.DOMINATED, 0, 60.0, 2.0), "{} is 1m 00s faster and $2.00 cheaper"),
        (Reason(1, Verdict.DOMINATED, 0, 0.0, 2.0), "{} is $2.00 cheaper"),
    ],
)
def test_why_a_plan_lost(reason: Reason, sentence: str) -> None:
    frontier = limited()
    offer = frontier.plans[0].offer
    expected = sentence.format(f"{offer.provider}:{offer.instance}")
    assert why_lost(frontier, reason).replace("\u00a0", " ") == expected
