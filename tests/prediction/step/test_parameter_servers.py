"""Steps with parameter servers: the synchronous formula by hand, and how the variants compare."""

from __future__ import annotations

from functools import cache

import pytest
from tests.support.hand_made_steps import environment, graph

from foretrain.prediction.collectives.costs import Collective, Group, Verb, price_collective
from foretrain.prediction.cost_models import call_times
from foretrain.prediction.step.parallel import ParallelStep, predict_step
from foretrain.prediction.step.parameter_servers import NOTE, predict_server_step
from foretrain.prediction.strategies.program import optimizer_start, parameter_bytes
from foretrain.prediction.strategies.strategy import Layout, layout_of
from foretrain.workloads.executed import ExecutedGraph

ON = "t4:1x4"
VOICE = graph("voice-conv", batch=20)


@cache
def over_servers(strategy: str, jitter: float = 0.0, on: str = ON, micro_batches: int = 1) -> ParallelStep:
    nodes = 4 if on == ON else 1
    layout = layout_of(strategy, 4, 4 // nodes)
    return predict_server_step(ExecutedGraph(VOICE), layout, micro_batches, environment(on), jitter)


def alone() -> tuple[float, float]:
    """A worker's step without its update, and the update."""
    step = predict_step(ExecutedGraph(VOICE), Layout("one"), 1, environment(ON))
    updating = float(call_times(step.priced).device[optimizer_start(VOICE) :].sum())
    return step.seconds - updating, updating


def test_a_synchronous_step_by_hand() -> None:
    """T = t_fwd + t_bwd + 2 S / (B / n) + t_agg."""
    at = environment(ON)
    message = Collective(Verb.SEND, parameter_bytes(VOICE), Group(2, 1))
    seconds = price_collective(message, at.network, at.device).seconds
    computing, updating = alone()
    step = over_servers("ps-sync")
    assert step.seconds == pytest.approx(computing + 2 * 4 * seconds + updating)
    assert step.run.exposed_seconds == pytest.approx(8 * seconds + updating)
    assert step.staleness == 0


@pytest.mark.parametrize(
    "strategy",
    ["ps-sync", "ps-async", "ps-ksync=2", "ps-kbatchsync=2", "ps-kasync=2", "ps-kbatchasync=2"],
)
def test_parts_sum_to_the_time_between_updates(strategy: str) -> None:
    step = over_servers(strategy, 0.1)
    assert step.estimate.value == pytest.approx(step.run.seconds)
    assert step.estimate.quantiles.p10 <= step.seconds <= step.estimate.quantiles.p90
    push, pull = step.traffic
    assert (push.verb, pull.verb) == (Verb.PUSH, Verb.PULL)
    assert push.bytes == pull.bytes == parameter_bytes(VOICE) * step.layout.contributions
    assert NOTE in step.notes


def test_asynchronous_gradients_come_more_often_and_are_stale() -> None:
    sync, asynchronous = over_servers("ps-sync", 0.1), over_servers("ps-async", 0.1)
    assert asynchronous.seconds < sync.seconds / 2
    assert asynchronous.staleness == 3
    per_gradient = sync.seconds / 4
    assert asynchronous.seconds < per_gradient


def test_waiting_for_fewer_is_quicker() -> None:
    times = [over_servers(f"ps-ksync={k}", 0.3).seconds for k in (1, 2, 3, 4)]
    assert times == sorted(times)
    assert over_servers("ps-ksync=4", 0.3).seconds == pytest.approx(over_servers("ps-sync", 0.3).seconds)


def test_more_servers_share_the_traffic() -> None:
    one, two, four = (over_servers(f"ps-sync,servers={count}") for count in (1, 2, 4))
    assert one.seconds > two.seconds > four.seconds > alone()[0]
    assert four.run.exposed_seconds < one.run.exposed_seconds / 3


def test_jitter_makes_synchronous_workers_wait() -> None:
    assert over_servers("ps-sync", 0.3).seconds > over_servers("ps-sync", 0.0).seconds


def test_micro_batches_are_pushed_once() -> None:
    one, two = (over_servers("ps-sync", micro_batches=count) for count in (1, 2))
    assert two.run.exposed_seconds == pytest.approx(one.run.exposed_seconds)
    assert two.seconds > one.seconds


def test_workers_of_one_node_meet_in_the_hosts_memory() -> None:
    step = over_servers("ps-sync", on="t4:4")
    assert step.seconds < over_servers("ps-sync").seconds
    assert {each.members for each in step.traffic} == {4}
