"""Layer cuts: by hand, against trying all cuts, and within a second where a model is large."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.pipeline.cuts import (
    Chain,
    Cuts,
    StageLink,
    StageMemory,
    cut,
    evaluate_cuts,
)
from foretrain.prediction.strategies.pipeline.schedules import peak_in_flight, schedule


def chain(
    seconds: Sequence[float],
    crossing: Sequence[float] | None = None,
    parameters: Sequence[float] | None = None,
    saved: Sequence[float] | None = None,
) -> Chain:
    """A third of the time is forward."""
    count = len(seconds)
    whole = np.asarray(seconds, dtype=np.float64)
    return Chain(
        whole / 3,
        whole * 2 / 3,
        np.asarray(parameters if parameters is not None else np.zeros(count), dtype=np.float64),
        np.asarray(saved if saved is not None else np.zeros(count), dtype=np.float64),
        np.asarray(crossing if crossing is not None else np.zeros(count - 1), dtype=np.float64),
    )


def cuts_of(answer: Cuts | Infeasible) -> Cuts:
    assert isinstance(answer, Cuts), answer
    return answer


def one_forward_one_backward(stages: int) -> Sequence[int]:
    return peak_in_flight(schedule("1f1b", stages, 8))


def test_free_cuts_balance_the_stages() -> None:
    cuts = cuts_of(cut(chain([3, 3, 3, 9, 3, 6]), 3))
    assert cuts.bounds == (0, 3, 4, 6)
    assert cuts.stage_seconds == pytest.approx((9, 9, 9))
    assert cuts.seconds == pytest.approx(9)


def test_dear_cuts_are_avoided() -> None:
    """Balanced would be 6 + 6, but 4 bytes cross there: 10 s; the other cut costs 1 byte: 9 + 1 s."""
    cuts = cuts_of(cut(chain([3, 3, 3, 3], crossing=[1, 5, 1]), 2, StageLink(seconds_per_byte=1.0)))
    assert cuts.bounds in {(0, 1, 4), (0, 3, 4)}
    assert cuts.seconds == pytest.approx(10)
    assert cuts.cut_bytes == (1,)


def test_each_stage_pays_for_what_it_sends_in_both_directions() -> None:
    cuts = cuts_of(
        cut(chain([3, 3, 3], crossing=[2, 4]), 3, StageLink(seconds_per_byte=1.0, latency_seconds=0.5))
    )
    assert cuts.stage_seconds == pytest.approx((3 + 2.5, 3 + 2.5 + 4.5, 3 + 4.5))


def test_early_stages_hold_more_activations() -> None:
    """1F1B of 2 stages holds 2 and 1 micro-batches: with room for 4 the first stage takes 2 of 6 positions,
    the second the other 4."""
    memory = StageMemory(4.0, in_flight=one_forward_one_backward)
    cuts = cuts_of(cut(chain([1] * 6, saved=[1] * 6), 2, memory=memory))
    assert cuts.bounds == (0, 2, 6)
    assert cuts.stage_bytes == (4, 4)


def test_received_activations_are_held_too() -> None:
    cuts = cuts_of(cut(chain([1, 1], crossing=[7], saved=[1, 1]), 2))
    assert cuts.stage_bytes == (1, 8)


def test_too_little_memory_names_what_is_needed_and_the_fewest_stages() -> None:
    """Four positions of 2 bytes with Adam (8 bytes each): two stages need 16 bytes each, four need 8."""
    memory = StageMemory(10.0, state_bytes_per_parameter_byte=4)
    answer = cut(chain([1] * 4, parameters=[2] * 4), 2, memory=memory)
    assert isinstance(answer, Infeasible)
    assert answer.needed == "16.0 B of memory"
    assert answer.available == "10 B"
    assert answer.alternative == "4 stages are the fewest that fit"


def test_a_position_larger_than_any_device_is_hopeless() -> None:
    answer = cut(chain([1] * 4, parameters=[2, 20, 2, 2]), 2, memory=StageMemory(10.0))
    assert isinstance(answer, Infeasible)
    assert answer.alternative == "no number of stages up to 4 fits"


def test_in_flight_known_for_one_number_of_stages_gives_no_other() -> None:
    memory = StageMemory(10.0, in_flight=lambda _: (2, 1))
    answer = cut(chain([1] * 4, parameters=[9] * 4), 2, memory=memory)
    assert isinstance(answer, Infeasible)
    assert answer.alternative == "use devices with more memory"
    with pytest.raises(InvalidRequest, match="in_flight must return 3 numbers"):
        cut(chain([1] * 4), 3, memory=memory)


def test_more_stages_than_positions_is_infeasible() -> None:
    answer = cut(chain([1, 1]), 3)
    assert isinstance(answer, Infeasible)
    assert "at most 2 stages" in str(answer)


def test_invalid_values_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        cut(chain([1, 1]), 0)
    with pytest.raises(InvalidRequest, match="crossing_bytes must have 2 entries, got 1"):
        chain([1, 1, 1], crossing=[1])


def brute_force(model: Chain, stages: int, link: StageLink, memory: StageMemory) -> float | None:
    """The pace of the best of all cuts, from sums written out again."""
    best: float | None = None
    crossing = [0.0, *model.crossing_bytes, 0.0]
    for inner in combinations(range(1, len(model)), stages - 1):
        bounds = (0, *inner, len(model))
        pace = 0.0
        for stage, (i, j) in enumerate(pairwise(bounds)):
            work = sum(model.forward_seconds[i:j]) + sum(model.backward_seconds[i:j])
            sends = (crossing[i] + crossing[j]) * link.seconds_per_byte
            sends += ((i > 0) + (j < len(model))) * link.latency_seconds
            state = sum(model.parameter_bytes[i:j]) * memory.state_bytes_per_parameter_byte
            held = memory.in_flight(stages)[stage] * (sum(model.saved_bytes[i:j]) + crossing[i])
            if state + held > memory.capacities(stages)[stage]:
                break
            pace = max(pace, work + sends)
        else:
            best = pace if best is None else min(best, pace)
    return best


@settings(max_examples=150)
@given(data=st.data())
def test_no_cuts_are_better(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 9))
    stages = data.draw(st.integers(1, count))
    numbers = st.integers(0, 20)

    def some(size: int) -> list[int]:
        return data.draw(st.lists(numbers, min_size=size, max_size=size))

    model = chain([3 * second for second in some(count)], some(count - 1), some(count), some(count))
    link = StageLink(seconds_per_byte=data.draw(st.sampled_from([0.0, 0.5, 4.0])), latency_seconds=1.0)
    capacity = data.draw(st.one_of(st.just(float("inf")), st.integers(10, 200).map(float)))
    memory = StageMemory(capacity, 2.0, one_forward_one_backward)
    best = brute_force(model, stages, link, memory)
    answer = cut(model, stages, link, memory)
    if best is None:
        assert isinstance(answer, Infeasible)
    else:
        assert cuts_of(answer).seconds == pytest.approx(best)
        again = evaluate_cuts(model, cuts_of(answer).bounds, link, memory)
        assert again == answer


def test_fewest_stages_are_the_fewest() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        model = chain(rng.integers(1, 9, 8).tolist(), None, rng.integers(1, 9, 8).tolist())
        memory = StageMemory(float(rng.integers(9, 20)))
        answer = cut(model, 1, memory=memory)
        fewest = next(k for k in range(1, 9) if brute_force(model, k, StageLink(), memory) is not None)
        if fewest > 1:
            assert isinstance(answer, Infeasible)
            assert answer.alternative == f"{fewest} stages are the fewest that fit"


def test_of_equal_cuts_the_one_with_least_traffic_is_taken() -> None:
    """The first stage paces with 9 s; the rest can be cut after any of three positions."""
    cuts = cuts_of(cut(chain([9, 2, 2, 2, 2], crossing=[5, 7, 3, 7]), 3))
    assert cuts.bounds == (0, 1, 3, 5)


def test_the_coarse_grid_hides_nothing() -> None:
    """Enough positions for the grid to leave most of them out; all cuts are still tried."""
    rng = np.random.default_rng(7)
    for stages in (2, 3):
        model = chain(rng.uniform(0, 1, 60).tolist(), rng.uniform(0, 20, 59).tolist(), [1.0] * 60, [1.0] * 60)
        link, memory = StageLink(seconds_per_byte=1.0), StageMemory(120.0, in_flight=one_forward_one_backward)
        best = brute_force(model, stages, link, memory)
        assert cuts_of(cut(model, stages, link, memory)).seconds == pytest.approx(best)


def test_blocks_meet_without_a_seam() -> None:
    """More positions than one block of the search holds, even work: the ideal is the exact share."""
    cuts = cuts_of(cut(chain([1.0] * 400), 8))
    assert cuts.seconds == pytest.approx(50)


def test_two_thousand_positions_in_64_stages_take_a_moment() -> None:
    rng = np.random.default_rng(1)
    model = chain(
        rng.uniform(0, 1, 2000).tolist(), rng.uniform(0, 1, 1999).tolist(), [1.0] * 2000, [1.0] * 2000
    )
    memory = StageMemory(400.0, in_flight=lambda stages: tuple(min(4, stages - s) for s in range(stages)))
    began = time.process_time()
    assert cuts_of(cut(model, 64, StageLink(1e-3), memory)).seconds < 20
    assert time.process_time() - began < 2.5, "about 0.3 s on an idle core; a loaded machine is given room"
