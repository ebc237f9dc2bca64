"""PyTorch's caching allocator, on sequences worked out by hand from its rules."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.support.plain_allocator import simulate_plainly

from foretrain.prediction.memory.allocator import (
    EMPTY_CACHE,
    FREE,
    RELEASE,
    Event,
    StepEvents,
    one_step,
    peak_requested_bytes,
    rounded_bytes,
    simulate,
    simulate_steps,
)

KIB, MIB = 1 << 10, 1 << 20


def reserved(*events: Event) -> int:
    return simulate(events).peak_reserved_bytes


def requested(events: list[Event]) -> int:
    return peak_requested_bytes(*one_step(events))


def test_requests_are_rounded_to_512_bytes() -> None:
    assert [rounded_bytes(size) for size in (1, 512, 513)] == [512, 512, 1024]
    assert simulate([(0, 1), (1, 513)]).peak_allocated_bytes == 512 + 1024


def test_small_requests_share_a_segment_of_2_mib() -> None:
    assert reserved((0, 512 * KIB), (1, 1 * MIB), (2, 512 * KIB)) == 2 * MIB
    assert reserved((0, 1 * MIB), (1, 1 * MIB), (2, 1)) == 4 * MIB


def test_requests_of_1_to_10_mib_share_a_segment_of_20_mib() -> None:
    assert reserved((0, 1 * MIB + 1)) == 20 * MIB
    assert reserved((0, 9 * MIB), (1, 9 * MIB)) == 20 * MIB
    assert reserved((0, 9 * MIB), (1, 9 * MIB), (2, 3 * MIB)) == 40 * MIB


def test_large_requests_get_a_segment_of_their_own_in_steps_of_2_mib() -> None:
    assert reserved((0, 10 * MIB)) == 10 * MIB
    assert reserved((0, 11 * MIB)) == 12 * MIB
    assert reserved((0, 100 * MIB + 1)) == 102 * MIB


def test_a_large_block_is_split_only_if_more_than_1_mib_remains() -> None:
    # 12 MiB are free. A request of 11 MiB takes them whole, so the next 1.5 MiB need a new segment ...
    assert reserved((0, 12 * MIB), (0, FREE), (1, 11 * MIB), (2, 1 * MIB + 512 * KIB)) == 32 * MIB
    # ... but after a request of 10 MiB, 2 MiB are left for them.
    assert reserved((0, 12 * MIB), (0, FREE), (1, 10 * MIB), (2, 1 * MIB + 512 * KIB)) == 12 * MIB


def test_an_unsplit_block_counts_whole_as_allocated() -> None:
    assert simulate([(0, 12 * MIB), (0, FREE), (1, 11 * MIB)]).peak_allocated_bytes == 12 * MIB
    assert simulate([(0, 11 * MIB)]).peak_allocated_bytes == 12 * MIB


def test_the_best_fitting_free_block_is_taken() -> None:
    # Free: 30 and 12 MiB. The 12 MiB request must take the latter, leaving 30 for the last request.
    events = [(0, 30 * MIB), (1, 12 * MIB), (0, FREE), (1, FREE), (2, 12 * MIB), (3, 30 * MIB)]
    assert reserved(*events) == 42 * MIB


def test_freed_neighbours_merge() -> None:
    # Two halves of a 40 MiB segment, freed one after the other, make room for 40 MiB again.
    first: list[Event] = [(0, 40 * MIB), (0, FREE), (1, 20 * MIB), (2, 20 * MIB)]
    assert reserved(*first, (1, FREE), (2, FREE), (3, 40 * MIB)) == 40 * MIB
    assert reserved(*first, (2, FREE), (1, FREE), (3, 40 * MIB)) == 40 * MIB
    # With one half still in use they do not.
    assert reserved(*first, (1, FREE), (3, 40 * MIB)) == 80 * MIB


def test_blocks_of_different_segments_never_merge() -> None:
    assert reserved((0, 20 * MIB), (1, 20 * MIB), (0, FREE), (1, FREE), (2, 40 * MIB)) == 80 * MIB


def test_releasing_returns_only_segments_that_are_wholly_free() -> None:
    start: list[Event] = [(0, 20 * MIB), (1, 30 * MIB), (1, FREE)]
    # Kept in the cache, the 30 MiB are too small for 40; given back, they no longer count.
    assert reserved(*start, (2, 40 * MIB)) == 90 * MIB
    assert reserved(*start, (0, RELEASE), (2, 40 * MIB)) == 60 * MIB


def test_under_pressure_the_cache_is_given_back_first() -> None:
    events: list[Event] = [(0, 20 * MIB), (1, 30 * MIB), (1, FREE), (2, 40 * MIB)]
    assert simulate(events, capacity_bytes=60 * MIB).failed_at is None
    assert simulate(events, capacity_bytes=59 * MIB).failed_at == 3


def test_live_at_peak_is_what_was_held_when_most_was_last_allocated() -> None:
    once: list[Event] = [(0, 20 * MIB), (1, 30 * MIB + 1), (0, FREE), (2, 10 * MIB), (2, FREE)]
    footprint = simulate(once)
    assert footprint.peak_reserved_bytes == 52 * MIB
    assert footprint.live_at_peak == (0, 1)
    assert simulate([*once, (3, 20 * MIB)]).live_at_peak == (1, 3)


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Allocations and frees in any order, each free after its allocation."""
    events: list[Event] = []
    live: list[int] = []
    for key in range(draw(st.integers(1, 30))):
        frees = draw(st.booleans())
        if live and frees:
            events.append((live.pop(draw(st.integers(0, len(live) - 1))), FREE))
        events.append((key, draw(st.integers(1, 64 * MIB))))
        live.append(key)
    return events


@given(histories())
def test_reserved_covers_allocated_covers_what_is_live(events: list[Event]) -> None:
    footprint = simulate(events)
    live = peak_live = 0
    sizes: dict[int, int] = {}
    for key, size in events:
        live += size if size != FREE else -sizes[key]
        sizes[key] = size
        peak_live = max(peak_live, live)
    assert footprint.peak_reserved_bytes >= footprint.peak_allocated_bytes >= requested(events)
    assert requested(events) >= peak_live
    assert footprint.peak_reserved_bytes % (2 * MIB) == 0


def test_requested_bytes_by_hand() -> None:
    assert requested([(0, 513), (1, 1), (0, FREE), (2, 512), (0, RELEASE)]) == 1024 + 512


@given(histories())
def test_when_everything_is_freed_every_segment_can_be_given_back(events: list[Event]) -> None:
    live = {key for key, size in events if size != FREE} - {key for key, size in events if size == FREE}
    emptied: list[Event] = [*events, *((key, FREE) for key in sorted(live))]
    # Had anything stayed allocated, or failed to merge, it would add to the peak of the second round.
    assert simulate([*emptied, (0, RELEASE), *emptied]) == simulate(emptied)


@given(histories())
def test_a_capacity_of_the_peak_is_enough_and_results_repeat(events: list[Event]) -> None:
    footprint = simulate(events)
    assert simulate(events) == footprint
    assert simulate(events, footprint.peak_reserved_bytes).failed_at is None
    assert simulate(events, requested(events) - 1).failed_at is not None


SIZES = (0, 1, 700, MIB, MIB + 1, 9 * MIB, 10 * MIB, 12 * MIB + 1, 31 * MIB)


@st.composite
def training(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Sizes and steps: allocations, frees of what is live or not, a cache emptied; steps may repeat."""
    sizes = draw(st.lists(st.sampled_from(SIZES) | st.integers(0, 64 * MIB), min_size=1, max_size=12))
    count = len(sizes)
    event = st.integers(-count, count - 1) | st.just(EMPTY_CACHE)
    some, others = (draw(st.lists(event, max_size=30)) for _ in range(2))
    emptied = [*range(-count, 0)]
    return sizes, draw(st.lists(st.sampled_from([some, others, [*some, *emptied]]), min_size=1, max_size=5))


@given(training(), st.lists(st.none() | st.integers(0, 500), min_size=1, max_size=5))
def test_steps_take_what_they_take_event_by_event(
    given_steps: tuple[list[int], list[list[int]]], capacities: list[int | None]
) -> None:
    """As the plain implementation has it, with each capacity: no shortcut changes a byte."""
    sizes, steps = given_steps
    events = [
        (0, RELEASE) if event == EMPTY_CACHE else (event, sizes[event]) if event >= 0 else (~event, FREE)
        for step in steps
        for event in step
    ]
    arrays = StepEvents(len(sizes), tuple(np.array(step, np.int64) for step in steps))
    for mebibytes in capacities:
        capacity = None if mebibytes is None else mebibytes * MIB
        assert simulate_steps(arrays, np.array(sizes), capacity) == simulate_plainly(events, capacity)


@given(histories(), st.none() | st.integers(0, 500))
def test_a_history_takes_what_it_takes_event_by_event(events: list[Event], mebibytes: int | None) -> None:
    capacity = None if mebibytes is None else mebibytes * MIB
    assert simulate(events, capacity) == simulate_plainly(events, capacity)
