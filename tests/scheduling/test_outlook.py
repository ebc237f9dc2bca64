"""Plans that can be followed by hand: 10 s on one GPU, 6 s on two, 1 USD per GPU-second."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from foretrain.scheduling.options import places_of, table_of
from foretrain.scheduling.outlook import Settings, look_ahead, periods_of, plans_of, prices_of
from foretrain.scheduling.problem import Configuration, Fleet, NodeGroup, NodeType, SubmittedJob, elastic
from foretrain.scheduling.state import JobState, State

ONE = NodeType(name="one", gpu="k80", gpus=1, usd_per_hour=3600)
TWO = NodeType(name="two", gpu="k80", gpus=2, usd_per_hour=7200)
PERIODS = np.array([1.0, 4.0, 20.0, math.inf])
CAPACITY = np.array([1.0, 3.0, 16.0, math.inf])


def job(name: str, deadline: float, weight: float = 5.0, one: float = 10.0, two: float = 6.0) -> SubmittedJob:
    return SubmittedJob(
        name=name,
        submit_seconds=0,
        deadline_seconds=deadline,
        weight_usd_per_second=weight,
        seconds={Configuration("one", 1): one, Configuration("two", 1): one, Configuration("two", 2): two},
    )


def state(*jobs: SubmittedJob, nodes: int = 1) -> State:
    return State(0.0, elastic([ONE, TWO], nodes), {each.name: JobState(each) for each in jobs}, {})


def cheapest(*jobs: SubmittedJob) -> float:
    here = state(*jobs)
    places = places_of(here.fleet, frozenset())
    return float(plans_of(table_of(here, places, 9), places, 1, PERIODS, Settings()).cost.min())


@pytest.mark.parametrize(
    ("deadline", "usd"),
    [
        (10.0, 10.0),  # one GPU is in time
        (8.0, 11.0),  # two GPUs for x = 3 s (x/6 + (8-x)/10 = 1), then one for 5 s
        (6.0, 12.0),  # two GPUs all the time
        (5.0, 12.0 + 5.0),  # a second late all the same
    ],
)
def test_the_cheapest_plan_ends_at_the_deadline(deadline: float, usd: float) -> None:
    assert cheapest(job("a", deadline)) == pytest.approx(usd)


def test_a_job_that_only_has_to_end_is_in_no_period() -> None:
    """Its work is 0, and 0 times the infinite time where it may not run is no number."""
    waits = replace(job("waits", 9.0), seconds={Configuration("one", 1): 10.0})
    here = state(waits, job("a", 10.0))
    here = replace(here, jobs={**here.jobs, "waits": replace(here.jobs["waits"], work_left=0.0)})
    places = places_of(here.fleet, frozenset())
    alone = periods_of(table_of(state(job("a", 10.0)), places, 9), places, here, Settings())
    assert periods_of(table_of(here, places, 9), places, here, Settings()) == pytest.approx(alone)


def test_node_time_is_counted_by_period() -> None:
    here = state(job("a", 10.0))
    places = places_of(here.fleet, frozenset())
    plans = plans_of(table_of(here, places, 9), places, 1, PERIODS, Settings())
    best = plans.node_seconds[0, plans.cost[0].argmin()]
    assert best == pytest.approx([0.5, 1.5, 3.0, 0.0])  # half a node of two GPUs for 10 s


def test_prices_are_at_their_floor_where_plans_fit() -> None:
    here = state(job("a", 10.0))
    places = places_of(here.fleet, frozenset())
    plans = plans_of(table_of(here, places, 9), places, 1, PERIODS, Settings())
    prices, dual = prices_of(plans, CAPACITY, (np.zeros(4), np.zeros(4)), steps=50)
    assert prices == pytest.approx([0.0] * 4)
    assert dual == pytest.approx(10.0)


def test_prices_rise_where_plans_do_not_fit_and_the_dual_is_below_the_cost() -> None:
    here = state(*(job(f"job-{number}", 6.0) for number in range(4)))
    places = places_of(here.fleet, frozenset())
    plans = plans_of(table_of(here, places, 9), places, 1, PERIODS, Settings())
    prices, dual = prices_of(plans, CAPACITY, (np.zeros(4), np.zeros(4)), steps=50)
    alone = plans.cost.min(axis=1).sum()
    assert prices[0] > 0
    assert alone < dual < alone + 4 * 5.0 * 20.0


def test_sizes_without_a_node_are_priced_like_the_next_node_unless_shared() -> None:
    four = NodeType(name="four", gpu="k80", gpus=4, usd_per_hour=4 * 3600)
    alone, shared = (places_of(elastic([ONE, four], 1), frozenset(), each) for each in (True, False))
    assert alone.usd.tolist() == pytest.approx([1.0, 4.0, 4.0, 4.0])
    assert shared.usd.tolist() == pytest.approx([1.0, 2.0, 3.0, 4.0])


def test_groups_have_prices_of_their_own() -> None:
    fleet = Fleet({"one": ONE, "two": TWO}, (NodeGroup(1, ("one",)), NodeGroup(1, ("two",))))
    here = State(0.0, fleet, {"a": JobState(job("a", 8.0))}, {})
    view = look_ahead(here, Settings())
    assert view.prices.shape == (2 * len(view.periods),)
    assert set(view.places.group.tolist()) == {0, 1}
