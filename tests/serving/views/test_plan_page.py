"""The page of a plan: why this one, at which risk, how old its price is, and what was excluded."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest
from tests.support.frontiers import example

from foretrain.planning.frontier import Exclusion, Frontier
from foretrain.serving.views.blocks import Heading, Sentence
from foretrain.serving.views.plan import kept_limits, plan_page
from foretrain.units import HOUR


def text_of(frontier: Frontier, days_old: int = 0) -> str:
    as_of = date.fromisoformat(frontier.plans[frontier.reported].offer.as_of)
    page = plan_page(frontier, today=as_of + timedelta(days=days_old))
    return "\n".join(block.text for block in page.blocks if isinstance(block, Sentence | Heading))


def with_memory_risk(frontier: Frontier, chance: float) -> Frontier:
    """The same answer if its plan ran out of memory with some chance."""
    plan = frontier.plans[frontier.reported]
    risky = replace(plan, configuration=replace(plan.configuration, out_of_memory_probability=chance))
    plans = list(frontier.plans)
    plans[frontier.reported] = risky
    return replace(frontier, plans=tuple(plans))


def test_the_choice_names_its_rule_and_what_the_next_ones_cost() -> None:
    limited = replace(example(deadline_seconds=HOUR), next_best=(3,))
    assert "It is the cheapest plan within the deadline; next is" in text_of(limited)
    assert "It is the knee of the front, the least time x cost." in text_of(example())
    both = example(deadline_seconds=HOUR, budget_usd=30.0)
    assert both.rule == "the cheapest plan within the deadline and the budget"


def test_old_prices_are_warned_of_from_thirty_days() -> None:
    assert "Prices are as of" not in text_of(example(), days_old=29)
    assert "30 days ago or more: `foretrain offers --refresh`" in text_of(example(), days_old=30)


def test_pages_are_rendered_the_same_on_any_day_of_a_given_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    sentences = [block.text for block in plan_page(example()).blocks if isinstance(block, Sentence)]
    assert not any("Prices are as of" in text for text in sentences)


def test_the_risk_of_memory_is_not_shown_as_one_of_the_limit() -> None:
    sure = example(deadline_seconds=HOUR)
    assert "risk" not in kept_limits(sure, sure.plans[sure.reported])
    risky = with_memory_risk(sure, 0.39)
    words = kept_limits(risky, risky.plans[risky.reported]).replace("\u00a0", " ")
    assert "(risks: late under 1 %, out of memory 39 %)" in words
    assert "more than 10 % of running out of memory" in text_of(risky)


def test_what_was_planned_on_one_node_is_not_called_excluded() -> None:
    single = Exclusion("considered as single nodes only", 2, ("x:a",), is_partly=True)
    sets = Exclusion("the model does not fit into GPU memory", 3, ("1 × x:a", "2 × x:a"))
    text = text_of(replace(example(), excluded=(single, sets)))
    assert "Limited: 2 machine types (x:a, ...): considered as single nodes only" in text
    assert "Excluded: 3 sets of machines (1 × x:a, 2 × x:a, ...)" in text
