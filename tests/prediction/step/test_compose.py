"""Steps on streams, by hand: what waits for what, micro-batch after micro-batch, and stage after stage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hand_made_steps import by_bytes, environment, exchange, gpt2, graph, program, times

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import CallTimes, call_times
from foretrain.prediction.operators.matrix import has_static_products
from foretrain.prediction.step.compose import (
    Contention,
    compose,
    exchange_count,
    passes,
    per_step,
)
from foretrain.prediction.step.pipeline import compose_pipeline
from foretrain.prediction.strategies.pipeline.schedules import even_pipeline_seconds
from foretrain.prediction.strategies.program import Axis, Exchange, Program, When, forward_end
from foretrain.workloads.graph import Phase


def test_calls_alone_take_their_sum() -> None:
    run = compose(program("ffbo"), times(1, 2, 3, 4), by_bytes)
    assert run.seconds == run.computing_seconds == 10
    assert run.phases == {Phase.FORWARD: 3, Phase.BACKWARD: 3, Phase.OPTIMIZER: 4}
    assert run.exposed_seconds == run.waiting_seconds == run.bubble_seconds == 0


def test_an_exchange_that_is_waited_for_at_once_is_exposed() -> None:
    run = compose(program("ffbo", exchange(0, 1, 5.0, Axis.TENSOR)), times(1, 2, 3, 4), by_bytes)
    assert run.seconds == 15
    assert run.exposed_seconds == 5
    assert run.phases == {Phase.FORWARD: 3, Phase.BACKWARD: 3, Phase.OPTIMIZER: 4}


def test_an_exchange_with_time_to_spare_is_hidden() -> None:
    run = compose(program("ffbo", exchange(0, 3, 5.0)), times(1, 2, 3, 4), by_bytes)
    assert run.seconds == 10
    assert run.exposed_seconds == 0


@pytest.mark.parametrize(("product", "lost"), [(8.0, 5.0), (5.0, 5.0), (4.0, 4.0), (2.0, 2.5), (0.1, 2.5)])
def test_products_of_fixed_tiles_gain_nothing_from_overlap(product: float, lost: float) -> None:
    """A product waits until a shorter collective (5 s) ends; during a longer one it takes twice as long."""
    hidden = program("ffbo", exchange(0, 3, 5.0))
    run = compose(hidden, times(1, 2, 3, 4), by_bytes, Contention(1.0, product))
    assert run.seconds == 10 + lost
    assert run.exposed_seconds == lost
    half = compose(hidden, times(1, 2, 3, 4), by_bytes, Contention(0.5, product))
    assert half.seconds == 10 + lost / 2
    one = passes(hidden, times(1, 2, 3, 4), by_bytes, Contention(1.0, product))
    assert one.forward + one.backward == pytest.approx(6 + lost)


def test_contention_takes_no_more_than_there_is() -> None:
    exposed = program("ffbo", exchange(0, 1, 5.0, Axis.TENSOR))
    assert compose(exposed, times(1, 2, 3, 4), by_bytes, Contention(1.0, 1.0)).seconds == 15
    launched = CallTimes(np.array([1.0, 2, 3, 4]), np.array([4.0, 4, 4, 4]))
    run = compose(program("ffbo", exchange(0, 3, 5.0)), launched, by_bytes, Contention(1.0, 8.0))
    assert run.seconds == pytest.approx(16)
    assert run.seconds == pytest.approx(run.computing_seconds + run.exposed_seconds + run.waiting_seconds)


def test_products_are_static_on_hopper_alone() -> None:
    names = ("a100-sxm-80gb", "h100-sxm", "h200-sxm", "gh200", "b200", "mi300x")
    assert [has_static_products(device(name)) for name in names] == [False, True, True, True, False, False]


def test_an_exchange_before_everything_delays_everything() -> None:
    run = compose(program("fbo", exchange(-1, 0, 2.0), micro_batches=3), times(1, 1, 1), by_bytes)
    assert run.seconds == 3 * (2 + 2) + 1


def test_exchanges_of_one_axis_share_a_stream_and_axes_do_not() -> None:
    both = program("ffbo", exchange(0, 3, 4.0), exchange(1, 3, 4.0))
    assert compose(both, times(1, 1, 1, 1), by_bytes).seconds == 1 + 8 + 1
    apart = program("ffbo", exchange(0, 3, 4.0), exchange(1, 3, 4.0, Axis.TENSOR))
    assert compose(apart, times(1, 1, 1, 1), by_bytes).seconds == 2 + 4 + 1


def test_an_exchange_after_the_update_ends_the_step() -> None:
    run = compose(program("fbo", exchange(2, 3, 7.0, when=When.LAST)), times(1, 1, 1), by_bytes)
    assert run.seconds == 10
    assert run.exposed_seconds == 7


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4, 7, 64])
def test_every_first_and_last_micro_batch(micro_batches: int) -> None:
    """Forward 1, backward 2; 10 in each, 100 in the first, 1000 in the last; the update takes 1."""
    given_exchanges = (
        exchange(0, 1, 10.0, Axis.TENSOR),
        exchange(0, 1, 100.0, Axis.TENSOR, When.FIRST),
        exchange(1, 2, 1000.0, when=When.LAST),
    )
    whole = program("fbo", *given_exchanges, micro_batches=micro_batches)
    run = compose(whole, times(1, 2, 1), by_bytes)
    assert run.seconds == pytest.approx(micro_batches * (1 + 10 + 2) + 100 + 1000 + 1)
    assert [exchange_count(each, whole) for each in given_exchanges] == [micro_batches, 1, 1]
    assert per_step(np.array([1.0, 2.0, 1.0]), whole) == 3 * micro_batches + 1
    assert sum(run.phases.values()) == pytest.approx(run.computing_seconds + run.waiting_seconds)


seconds = st.integers(0, 20)


@st.composite
def some_program(draw: st.DrawFn) -> Program:
    spelled = "f" * draw(st.integers(1, 3)) + "b" * draw(st.integers(1, 3)) + "o" * draw(st.integers(0, 2))
    result = []
    for _ in range(draw(st.integers(0, 4))):
        after = draw(st.integers(-1, len(spelled) - 1))
        before = draw(st.integers(after + 1, len(spelled)))
        axis = draw(st.sampled_from([Axis.TENSOR, Axis.DATA]))
        result.append(exchange(after, before, draw(seconds), axis, draw(st.sampled_from(list(When)))))
    return program(spelled, *result, micro_batches=draw(st.integers(1, 3)))


@given(some_program(), st.data())
def test_any_step_is_what_it_spends_its_time_on(of: Program, data: st.DataObject) -> None:
    count = len(of.graph.calls)
    device, host = (
        np.array(data.draw(st.lists(seconds, min_size=count, max_size=count)), float) for _ in range(2)
    )
    run = compose(of, CallTimes(device, host), by_bytes)
    spent = run.computing_seconds + run.exposed_seconds + run.waiting_seconds + run.bubble_seconds
    assert spent == pytest.approx(run.seconds)
    exchanging = sum(by_bytes(each) * exchange_count(each, of) for each in of.exchanges)
    assert run.exposed_seconds <= exchanging + 1e-6
    assert run.computing_seconds == per_step(device, of)
    assert run.seconds >= per_step(host, of) - 1e-6
    assert sum(run.phases.values()) == pytest.approx(run.computing_seconds + run.waiting_seconds)
    free = compose(of, CallTimes(device, np.zeros(count)), lambda _: 0.0)
    assert free.seconds == pytest.approx(free.computing_seconds)
    slower = compose(of, CallTimes(device, np.zeros(count)), lambda each: 2 * each.bytes)
    assert slower.seconds >= compose(of, CallTimes(device, np.zeros(count)), by_bytes).seconds - 1e-9


def test_passes_of_a_stage_by_hand() -> None:
    """Forward 1 + 4 waited for, backward 2; 10 to reduce after it; the update takes 3."""
    of = program("fbo", exchange(0, 1, 4.0, Axis.TENSOR), exchange(1, 2, 10.0, when=When.LAST))
    result = passes(of, times(1, 2, 3), by_bytes)
    assert (result.forward + result.backward, result.tail, result.optimizer) == (7, 10, 3)
    assert result.waiting == result.update_waiting == 0
    assert forward_end(of.graph) == 1


def test_an_update_waits_for_its_launches() -> None:
    result = passes(program("fbo"), CallTimes(np.ones(3), np.array([0.0, 0.0, 5.0])), by_bytes)
    assert (result.optimizer, result.update_waiting, result.waiting) == (5, 4, 0)


VOICE = graph("voice-linear")


def of_equal_layers() -> tuple[Program, CallTimes]:
    """A real model whose every call takes a second to run forward, two backward, and none to update."""
    cost = {Phase.FORWARD: 1.0, Phase.BACKWARD: 2.0, Phase.OPTIMIZER: 0.0}
    device = np.array([cost[call.phase] for call in VOICE.calls])
    return Program(VOICE), CallTimes(device, np.zeros(len(device)))


def free(_: Exchange) -> float:
    return 0.0


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("micro_batches", [1, 2, 8])
def test_a_pipeline_takes_at_least_its_slowest_stage_and_its_bubble(
    schedule: str, micro_batches: int
) -> None:
    whole, spent = of_equal_layers()
    whole = Program(VOICE, micro_batches=micro_batches)
    run = compose_pipeline(whole, spent, (schedule, 2, 1), lambda part: part, free)
    assert run.calls is not None
    each = passes(run.stages[run.busiest], spent.where(run.calls), free)
    slowest = each.forward + each.backward
    assert run.seconds >= micro_batches * slowest
    assert run.seconds <= (micro_batches + 1) * slowest
    assert run.computing_seconds == pytest.approx(micro_batches * slowest)
    assert run.bubble_seconds == pytest.approx(run.seconds - run.computing_seconds)


def of_equal_blocks() -> CallTimes:
    """GPT-2 where one call of each of its 12 blocks takes a second, and two backward."""
    calls = gpt2().calls
    first = {
        call.module.split(".")[1]: index
        for index, call in reversed([*enumerate(calls)])
        if call.module.startswith("blocks.") and call.phase is Phase.FORWARD and call.name == "aten.addmm"
    }
    device = np.zeros(len(calls))
    device[list(first.values())] = 1.0
    for forward in first.values():
        backward = next(i for i, call in enumerate(calls) if call.forward == forward)
        device[backward] = 2.0
    return CallTimes(device, np.zeros(len(device)))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 1), (2, 4), (4, 8), (6, 3)])
def test_even_stages_take_m_plus_p_minus_1_passes(schedule: str, stages: int, micro_batches: int) -> None:
    whole = Program(gpt2(), micro_batches=micro_batches)
    run = compose_pipeline(whole, of_equal_blocks(), (schedule, stages, 1), lambda part: part, free)
    blocks = 12 // stages
    assert run.seconds == (micro_batches + stages - 1) * 3 * blocks
    assert run.seconds == even_pipeline_seconds(blocks, 2 * blocks, stages, micro_batches)
    assert run.computing_seconds == micro_batches * 3 * blocks
    assert run.bubble_seconds == (stages - 1) * 3 * blocks
    held = [micro_batches] * stages
    if schedule == "1f1b":
        held = [min(stages - stage, micro_batches) for stage in range(stages)]
    assert run.in_flight == tuple(held)
    assert len(run.stage_names) == stages


def test_chunks_make_the_bubble_smaller() -> None:
    whole = Program(gpt2(), micro_batches=4)
    run = compose_pipeline(whole, of_equal_blocks(), ("interleaved", 2, 3), lambda part: part, free)
    assert run.seconds == (3 * 4 + 1) * 3 * 2
    assert run.bubble_seconds == 3 * 2


def test_sends_of_a_pipeline_are_its_traffic_and_its_bubble() -> None:
    whole = Program(VOICE, micro_batches=4)
    _, spent = of_equal_layers()
    slow = compose_pipeline(
        whole, spent, ("1f1b", 2, 1), lambda part: part, lambda each: 5.0 if each.verb is Verb.SEND else 0.0
    )
    quick = compose_pipeline(whole, spent, ("1f1b", 2, 1), lambda part: part, free)
    assert slow.seconds > quick.seconds
    assert slow.exposed_seconds == quick.exposed_seconds == 0
    assert slow.bubble_seconds > quick.bubble_seconds
    sends = [each for stage in slow.stages for each in stage.exchanges]
    assert [each.verb for each in sends] == [Verb.SEND, Verb.SEND]


def test_more_stages_than_layers_are_refused() -> None:
    at, of = environment("t4"), graph("mnist-cnn")
    spent = call_times(at.model.price(of, at.device))
    with pytest.raises(InvalidRequest, match=r"use at most \d+ stages"):
        compose_pipeline(Program(of), spent, ("1f1b", 400, 1), lambda part: part, free)


def test_micro_batches_of_a_stage_do_not_outrun_their_exchanges() -> None:
    """Passes of 3 s whose gradients take 10 s to scatter each time: one micro-batch every 10 s."""
    result = passes(program("fbo", exchange(1, 2, 10.0)), times(1, 2, 1), by_bytes)
    assert result.forward + result.backward == 10
    assert result.tail == 3
