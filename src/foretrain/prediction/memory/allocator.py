"""Simulation of PyTorch's CUDA caching allocator, block by block.

`nvidia-smi` shows the memory that the allocator has *reserved* from the driver, not the size of the tensors.
The rules (c10/cuda/CUDACachingAllocator.cpp; constants with their names there):

* a request is rounded up to 512 bytes (kMinBlockSize);
* requests of at most 1 MiB (kSmallSize) come from the small pool, in segments of 2 MiB (kSmallBuffer);
* larger ones come from the large pool: segments of 20 MiB (kLargeBuffer) for requests below 10 MiB
  (kMinLargeAlloc), else of the request rounded up to 2 MiB (kRoundLarge);
* the smallest free block that is large enough is used, among equals the one at the lowest address;
* its remainder becomes a free block if it has at least 512 bytes (small pool) or over 1 MiB (large);
* a freed block merges with free neighbours of its segment;
* when the driver has no memory left, segments that are entirely free are released before the next try.

One stream is simulated, with default settings (no `expandable_segments`, no `max_split_size`).

There are no objects for blocks: a free block is one integer, its size above its address, so that the best fit
is the next integer in a sorted list. Three observations save most of the remaining work and change no result:
the two pools are independent until memory runs short; small tensors seldom depend on the batch, so that their
pool does the same at every batch size; an allocator that begins a step in the state in which it began the one
before repeats it.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_BLOCK_BYTES = 512
SMALL_BYTES = 1 << 20
SMALL_SEGMENT_BYTES = 2 << 20
LARGE_SEGMENT_BYTES = 20 << 20
MIN_LARGE_BYTES = 10 << 20
LARGE_ROUNDING_BYTES = 2 << 20

FREE = -1
"""In place of a size: the allocation is freed."""

RELEASE = -2
"""In place of a size, with any key: release segments that are entirely free (`empty_cache`)."""

Event = tuple[int, int]
"""(key, bytes) allocates `bytes` under `key`; (key, FREE) frees them. Keys may be reused."""

EMPTY_CACHE = -(1 << 62)
"""Among the events of `StepEvents`: release segments that are entirely free."""

Integers = NDArray[np.int64]

_REMEMBERED = 32
"""Runs that are remembered: of the pool that is the same at other batch sizes, of steps asked for again."""


@dataclass(frozen=True)
class Footprint:
    """Memory of a sequence of events.

    `live_at_peak` are the allocations at the last peak of allocated memory; `failed_at` is the first event
    that exceeded the capacity, None if there is none.
    """

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    live_at_peak: tuple[int, ...]
    failed_at: int | None = None


@dataclass(frozen=True, eq=False)
class StepEvents:
    """The events of consecutive steps on allocations 0, 1, ..., whatever their sizes.

    k allocates allocation k, ~k frees it (and does nothing if it is not live).
    """

    allocations: int
    steps: tuple[Integers, ...]

    @cached_property
    def events(self) -> Integers:
        """The events of all steps."""
        return np.concatenate(self.steps)

    @cached_property
    def keys(self) -> Integers:
        """The allocation of each event; that of `EMPTY_CACHE` is one more than there are."""
        keys = np.where(self.events < 0, ~self.events, self.events)
        return np.where(self.events == EMPTY_CACHE, self.allocations, keys)

    @cached_property
    def signs(self) -> Integers:
        """1 for an allocation, -1 for a free, 0 for an event without effect on live bytes."""
        by_key = np.argsort(self.keys, kind="stable")
        keys, allocates = self.keys[by_key], self.events[by_key] >= 0
        frees = np.zeros(len(keys), bool)
        frees[1:] = (keys[1:] == keys[:-1]) & allocates[:-1] & ~allocates[1:]
        signs = np.empty(len(keys), np.int64)
        signs[by_key] = allocates.astype(np.int64) - frees
        return signs

    def live_after(self, event: int) -> Integers:
        """The allocations that are live after an event."""
        last = np.zeros(self.allocations + 1, np.int64)
        last[self.keys[: event + 1]] = self.signs[: event + 1]  # the last of several is kept
        return np.flatnonzero(last == 1)


def peak_requested_bytes(steps: StepEvents, sizes: Integers) -> int:
    """The most bytes of requests at one time, rounded to blocks: no allocator does with less.

    It takes a fiftieth of the time of a simulation.
    """
    requested = np.cumsum(steps.signs * _blocks(sizes)[steps.keys])
    return int(requested.max(initial=0)) * MIN_BLOCK_BYTES


def simulate_steps(steps: StepEvents, sizes: Integers, capacity_bytes: float | None = None) -> Footprint:
    """Run steps with allocations of `sizes` bytes on an empty allocator, up to the first that fails."""
    blocks = _blocks(sizes)
    of_event, releases = blocks[steps.keys], steps.events == EMPTY_CACHE
    is_small = blocks <= _SMALL
    pools = [is_small, ~is_small] if capacity_bytes is None else [blocks > 0]
    capacity = _UNLIMITED if capacity_bytes is None else capacity_bytes / MIN_BLOCK_BYTES
    end, failed_at = len(of_event), None
    allocated, reserved = np.zeros(end, np.int64), np.zeros(end, np.int64)
    bounds = np.cumsum([0, *map(len, steps.steps)])
    for pool in pools:
        places = np.flatnonzero((pool[steps.keys] & (of_event > 0)) | releases)
        events, cuts = steps.events[places], np.searchsorted(places, bounds)
        parts = tuple(events[i:j].tobytes() for i, j in pairwise(cuts))
        run = _runs_of(parts, np.where(pool, blocks, 0).tobytes()).within(capacity)
        allocated[places[: len(run.taken)]] = run.taken
        for event, size in run.changes.items():
            reserved[places[event]] += size
        if run.failed:
            end = failed_at = int(places[len(run.taken)])
    if not end:
        return Footprint(0, 0, (), failed_at)
    live = np.cumsum(allocated[:end])
    peak = end - 1 - int(np.argmax(live[::-1]))
    at_peak = steps.live_after(peak)
    return Footprint(
        int(live[peak]) * MIN_BLOCK_BYTES,
        int(np.cumsum(reserved[:end]).max(initial=0)) * MIN_BLOCK_BYTES,
        tuple(at_peak[blocks[at_peak] > 0].tolist()),
        failed_at,
    )


def simulate(events: Iterable[Event], capacity_bytes: float | None = None) -> Footprint:
    """The same for events one by one; `live_at_peak` are their keys."""
    listed = tuple(events)
    keys = [key for key, size in listed if size >= 0]
    footprint = simulate_steps(*one_step(listed), capacity_bytes)
    return replace(footprint, live_at_peak=tuple(keys[each] for each in footprint.live_at_peak))


def one_step(events: Sequence[Event]) -> tuple[StepEvents, Integers]:
    """Events one by one as a step, and the sizes of its allocations: each has a number of its own."""
    sizes = np.array([size for _, size in events if size >= 0], np.int64)
    numbers = iter(range(len(sizes)))
    current: dict[int, int] = {}
    order = []
    for key, size in events:
        if size >= 0:
            current[key] = next(numbers)
            order.append(current[key])
        else:
            order.append(EMPTY_CACHE if size == RELEASE else ~current.get(key, len(sizes)))
    return StepEvents(len(sizes), (np.array(order, np.int64),)), sizes


def rounded_bytes(size: int) -> int:
    """A request rounded up to blocks of 512 bytes."""
    return -(-size // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


def _blocks(sizes: Integers) -> Integers:
    """Sizes in units of 512 bytes, rounded up, and 0 for what has no size."""
    return np.append(-(-sizes // MIN_BLOCK_BYTES), 0)


_SMALL, _SMALL_SEGMENT, _LARGE_SEGMENT, _MIN_LARGE, _LARGE_ROUNDING = (
    size // MIN_BLOCK_BYTES
    for size in (SMALL_BYTES, SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES, MIN_LARGE_BYTES, LARGE_ROUNDING_BYTES)
)
_UNLIMITED = float(1 << 62)
_SHIFT = 52
_ADDRESS = (1 << _SHIFT) - 1


class _Run(NamedTuple):
    """What the allocator did, in units of 512 bytes.

    `taken` by each event (negative when freed), up to the one that failed, if one did; `changes` of reserved
    memory by event. With any capacity from `low` to below `high` it does the same.
    """

    taken: Integers
    changes: dict[int, int]
    failed: bool
    low: float
    high: float


@lru_cache(maxsize=_REMEMBERED)
def _runs_of(steps: tuple[bytes, ...], sizes: bytes) -> _Runs:
    return _Runs(steps, sizes, [])


def forget_runs() -> None:
    """Simulate anew from now on, for those who time simulations."""
    _runs_of.cache_clear()


class _Runs(NamedTuple):
    """The runs of some steps on an empty allocator so far, for allocations of `sizes` units."""

    steps: tuple[bytes, ...]
    sizes: bytes
    known: list[_Run]

    def within(self, capacity: float) -> _Run:
        """The run with a capacity, unless a known one did the same."""
        run = next((each for each in self.known if each.low <= capacity < each.high), None)
        if run is None:
            run = self._run(_Allocator(np.frombuffer(self.sizes, np.int64).tolist(), capacity))
            self.known.append(run)
        return run

    def _run(self, allocator: _Allocator) -> _Run:
        taken, changes = allocator.taken, allocator.changes
        previous, before, first, succeeds = b"", allocator.state(), 0, True
        for step in self.steps:
            state = allocator.state()
            if step == previous and state == before:
                shift = len(taken) - first
                changes |= {event + shift: size for event, size in changes.items() if event >= first}
                first, repeated = len(taken), taken[first:]
                taken += repeated
                continue
            previous, before, first = step, state, len(taken)
            succeeds = allocator.run(np.frombuffer(step, np.int64).tolist())
            if not succeeds:
                break
        return _Run(np.array(taken, np.int64), changes, not succeeds, allocator.low, allocator.high)


class _Allocator:
    """The allocator's blocks, and what it did so far: `taken` and `changes` of reserved memory by event.

    A block is `size << _SHIFT | address`, so that sorted lists of free ones, `small` and `large`, are in
    order of size, then address. `at_start` and `at_end` find them by their ends, to merge them with what is
    freed beside them; one address between segments is never used, so that their blocks do not touch. `low` is
    the most that was ever reserved, `high` the least that exceeded the capacity.
    """

    def __init__(self, wanted: list[int], capacity: float) -> None:
        self.wanted, self.capacity = wanted, capacity
        self.small: list[int] = []
        self.large: list[int] = []
        self.at_start: dict[int, int] = {}
        self.at_end: dict[int, int] = {}
        self.live: dict[int, tuple[int, int]] = {}
        self.segments: dict[int, int] = {}
        self.next_address = self.reserved = 0
        self.low, self.high = 0.0, math.inf
        self.taken: list[int] = []
        self.changes: dict[int, int] = {}

    def state(self) -> tuple[object, ...]:
        """What determines all that follows."""
        return self.small[:], self.large[:], self.live.copy(), self.reserved

    def run(self, events: list[int]) -> bool:
        """Allocate and free; False at the first event without memory. One loop, because calls take longer."""
        wanted, live, at_start, at_end = self.wanted, self.live, self.at_start, self.at_end
        small, large, note = self.small, self.large, self.taken.append
        for event in events:
            if event >= 0:
                want = wanted[event]
                free = small if want <= _SMALL else large
                fit = bisect_left(free, want << _SHIFT)
                if fit < len(free):
                    block = free.pop(fit)
                    start = block & _ADDRESS
                    del at_start[start]
                else:
                    block = self.reserve(want)
                    if block < 0:
                        return False
                    start = block & _ADDRESS
                size = block >> _SHIFT
                rest = size - want
                if rest > _SMALL or (rest and want <= _SMALL):
                    end = start + want
                    block = rest << _SHIFT | end
                    at_start[end] = at_end[end + rest] = block
                    insort(free, block)
                    live[~event] = start, end
                    note(want)
                else:
                    end = start + size
                    at_end.pop(end, None)
                    live[~event] = start, end
                    note(size)
            elif event in live:
                start, end = live.pop(event)
                size = end - start
                free = small if size <= _SMALL else large
                note(-size)
                if end in at_start:
                    block = at_start.pop(end)
                    del free[bisect_left(free, block)]
                    end += block >> _SHIFT
                if start in at_end:
                    block = at_end.pop(start)
                    del free[bisect_left(free, block)]
                    start = block & _ADDRESS
                block = end - start << _SHIFT | start
                at_start[start] = at_end[end] = block
                insort(free, block)
            else:
                if event == EMPTY_CACHE:
                    self.release_free_segments()
                note(0)
        return True

    def reserve(self, want: int) -> int:
        """A new segment, after those that are free were released if memory runs short; -1 without any."""
        if want <= _SMALL:
            size = _SMALL_SEGMENT
        elif want < _MIN_LARGE:
            size = _LARGE_SEGMENT
        else:
            size = -(-want // _LARGE_ROUNDING) * _LARGE_ROUNDING
        if self.reserved + size > self.capacity:
            self.high = min(self.high, self.reserved + size)
            self.release_free_segments()
        if self.reserved + size > self.capacity:
            self.high = min(self.high, self.reserved + size)
            return -1
        address, self.next_address = self.next_address, self.next_address + size + 1
        self.segments[address] = size
        self._change(size)
        self.low = max(self.low, self.reserved)
        return size << _SHIFT | address

    def release_free_segments(self) -> None:
        """Return segments that are one free block to the driver."""
        for free in (self.small, self.large):
            whole = [block for block in free if self.segments.get(block & _ADDRESS) == block >> _SHIFT]
            for block in whole:
                address, size = block & _ADDRESS, block >> _SHIFT
                free.remove(block)
                del self.at_start[address], self.at_end[address + size], self.segments[address]
                self._change(-size)

    def _change(self, size: int) -> None:
        event = len(self.taken)
        self.changes[event] = self.changes.get(event, 0) + size
        self.reserved += size
