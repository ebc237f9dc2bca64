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

_REMEMBERED = 16
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
    capacity = np.inf if capacity_bytes is None else capacity_bytes / MIN_BLOCK_BYTES
    end, failed_at = len(of_event), None
    allocated, reserved = np.zeros(end, np.int64), np.zeros(end, np.int64)
    bounds = np.cumsum([0, *map(len, steps.steps)])
    for pool in pools:
        places = np.flatnonzero((pool[steps.keys] & (of_event > 0)) | releases)
        events, cuts = steps.events[places], np.searchsorted(places, bounds)
        parts = tuple(events[i:j].tobytes() for i, j in pairwise(cuts))
        run = _run(parts, np.where(pool, blocks, 0).tobytes(), capacity)
        allocated[places[: len(run.taken)]] = run.taken
        for event, size in run.reserved.items():
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
_SHIFT = 60
_ADDRESS = (1 << _SHIFT) - 1


class _Run(NamedTuple):
    """What the allocator did, in units of 512 bytes.

    `taken` by each event (negative when freed), up to the one that failed, if one did; `reserved` or released
    by those events that did so.
    """

    taken: Integers
    reserved: dict[int, int]
    failed: bool


@lru_cache(maxsize=_REMEMBERED)
def _run(steps: tuple[bytes, ...], sizes: bytes, capacity: float) -> _Run:
    """Run steps on an empty allocator, everything in units of 512 bytes."""
    allocator = _Allocator(np.frombuffer(sizes, np.int64).tolist(), capacity)
    taken, changes = allocator.taken, allocator.changes
    before: tuple[object, ...] = ()
    first = 0
    for number, step in enumerate(steps):
        state = allocator.state()
        if number and step == steps[number - 1] and state == before:
            shift = len(taken) - first
            changes |= {event + shift: size for event, size in changes.items() if event >= first}
            first, repeated = len(taken), taken[first:]
            taken += repeated
            continue
        before, first = state, len(taken)
        if not allocator.run(np.frombuffer(step, np.int64).tolist()):
            return _Run(np.array(taken, np.int64), changes, failed=True)
    return _Run(np.array(taken, np.int64), changes, failed=False)


class _Allocator:
    """The allocator's blocks, and what it did so far: `taken` and `changes` of reserved memory by event.

    A block is `size << _SHIFT | address`, so that sorted lists of free ones, `small` and `large`, are in
    order of size, then address. `at_start` and `at_end` find them by their ends, to merge them with what is
    freed beside them; one address between segments is never used, so that their blocks do not touch.
    """

    def __init__(self, wanted: list[int], capacity: float) -> None:
        self.wanted, self.capacity = wanted, capacity
        self.small: list[int] = []
        self.large: list[int] = []
        self.at_start: dict[int, int] = {}
        self.at_end: dict[int, int] = {}
        self.live: dict[int, int] = {}
        self.segments: dict[int, int] = {}
        self.next_address = self.reserved = 0
        self.taken: list[int] = []
        self.changes: dict[int, int] = {}

    def state(self) -> tuple[object, ...]:
        """What determines all that follows."""
        return self.small[:], self.large[:], self.live.copy(), self.reserved

    def run(self, events: list[int]) -> bool:
        """Allocate and free; False at the first event without memory. One loop, because calls take longer."""
        wanted, live, at_start, at_end = self.wanted, self.live, self.at_start, self.at_end
        note = self.taken.append
        for event in events:
            if event >= 0:
                want = wanted[event]
                free = self.small if want <= _SMALL else self.large
                fit = bisect_left(free, want << _SHIFT)
                if fit < len(free):
                    block = free.pop(fit)
                    del at_start[block & _ADDRESS]
                else:
                    block = self.reserve(want)
                    if block < 0:
                        return False
                address, size = block & _ADDRESS, block >> _SHIFT
                rest = size - want
                if rest > _SMALL or (rest and want <= _SMALL):
                    block = rest << _SHIFT | address + want
                    at_start[address + want] = at_end[address + size] = block
                    insort(free, block)
                    size = want
                else:
                    at_end.pop(address + size, None)
                live[~event] = size << _SHIFT | address
                note(size)
            elif event in live:
                block = live.pop(event)
                address, size = block & _ADDRESS, block >> _SHIFT
                free = self.small if size <= _SMALL else self.large
                end = address + size
                if end in at_start:
                    after = at_start.pop(end)
                    del free[bisect_left(free, after)]
                    end += after >> _SHIFT
                if address in at_end:
                    before = at_end.pop(address)
                    del free[bisect_left(free, before)]
                    address = before & _ADDRESS
                block = end - address << _SHIFT | address
                at_start[address] = at_end[end] = block
                insort(free, block)
                note(-size)
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
            self.release_free_segments()
            if self.reserved + size > self.capacity:
                return -1
        address, self.next_address = self.next_address, self.next_address + size + 1
        self.segments[address] = size
        self._change(size)
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
