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
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Footprint:
    """Memory of a sequence of events.

    `live_at_peak` are the requested bytes by key at the last peak of allocated memory; `failed_at` is the
    first event that exceeded the capacity, None if there is none.
    """

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    live_at_peak: dict[int, int]
    failed_at: int | None = None


def simulate(events: Iterable[Event], capacity_bytes: float | None = None) -> Footprint:
    """Run the events on an empty allocator; stop at the first that exceeds the capacity."""
    listed = list(events)
    small, large = _Pool(_segment_bytes_small, MIN_BLOCK_BYTES), _Pool(_segment_bytes_large, SMALL_BYTES + 1)
    blocks: dict[int, _Block] = {}
    allocated = reserved = peak_allocated = peak_reserved = 0
    peak_event = -1
    for index, (key, size) in enumerate(listed):
        if size == FREE:
            block = blocks.pop(key, None)
            if block is not None:
                allocated -= block.size
                block.pool.give_back(block)
            continue
        if size == RELEASE:
            reserved -= small.release_free_segments() + large.release_free_segments()
            continue
        if size == 0:
            continue
        rounded = rounded_bytes(size)
        pool = small if rounded <= SMALL_BYTES else large
        block = pool.take(rounded)
        if block is None:
            segment = pool.segment_bytes(rounded)
            if capacity_bytes is not None and reserved + segment > capacity_bytes:
                reserved -= small.release_free_segments() + large.release_free_segments()
                if reserved + segment > capacity_bytes:
                    return _footprint(listed[:index], peak_event, peak_allocated, peak_reserved, index)
            reserved += segment
            peak_reserved = max(peak_reserved, reserved)
            block = pool.grow(segment, rounded)
        blocks[key] = block
        allocated += block.size
        if allocated >= peak_allocated:
            peak_allocated, peak_event = allocated, index
    return _footprint(listed, peak_event, peak_allocated, peak_reserved, None)


def peak_requested_bytes(events: Iterable[Event]) -> int:
    """The most bytes of requests at one time, rounded to blocks: no allocator does with less.

    It takes a tenth of the time of a simulation.
    """
    sizes: dict[int, int] = {}
    requested = peak = 0
    for key, size in events:
        if size == FREE:
            requested -= sizes.pop(key, 0)
        elif size > 0:
            sizes[key] = rounded_bytes(size)
            requested += sizes[key]
            peak = max(peak, requested)
    return peak


def rounded_bytes(size: int) -> int:
    """A request rounded up to blocks of 512 bytes."""
    return -(-size // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES


def _segment_bytes_small(_: int) -> int:
    return SMALL_SEGMENT_BYTES


def _segment_bytes_large(size: int) -> int:
    if size < MIN_LARGE_BYTES:
        return LARGE_SEGMENT_BYTES
    return -(-size // LARGE_ROUNDING_BYTES) * LARGE_ROUNDING_BYTES


def _footprint(
    events: list[Event], peak_event: int, allocated: int, reserved: int, failed_at: int | None
) -> Footprint:
    live: dict[int, int] = {}
    for key, size in events[: peak_event + 1]:
        if size == FREE:
            live.pop(key, None)
        elif size > 0:
            live[key] = size
    return Footprint(allocated, reserved, live, failed_at)


class _Block:
    """A block of a segment, in a doubly linked list with its neighbours."""

    __slots__ = ("address", "after", "before", "free", "pool", "size")

    def __init__(self, pool: _Pool, address: int, size: int) -> None:
        self.pool = pool
        self.address = address
        self.size = size
        self.free = False
        self.before: _Block | None = None
        self.after: _Block | None = None


class _Pool:
    """The small or the large pool: its free blocks in order of (size, address)."""

    def __init__(self, segment_bytes: Callable[[int], int], least_remainder: int) -> None:
        self.segment_bytes = segment_bytes
        self._least_remainder = least_remainder
        self._free: list[tuple[int, int]] = []
        self._at: dict[int, _Block] = {}
        self._next_address = 0

    def take(self, size: int) -> _Block | None:
        """The best-fitting free block, split if its remainder is large enough; None if there is none."""
        position = bisect_left(self._free, (size, 0))
        if position == len(self._free):
            return None
        block = self._at.pop(self._free.pop(position)[1])
        block.free = False
        self._split(block, size)
        return block

    def grow(self, segment: int, size: int) -> _Block:
        """A block of a new segment."""
        block = _Block(self, self._next_address, segment)
        self._next_address += segment
        self._split(block, size)
        return block

    def give_back(self, block: _Block) -> None:
        """Free a block and merge it with free neighbours."""
        before, after = block.before, block.after
        if before is not None and before.free:
            self._unlist(before)
            block.address, block.size = before.address, block.size + before.size
            block.before = before.before
            if block.before is not None:
                block.before.after = block
        if after is not None and after.free:
            self._unlist(after)
            block.size += after.size
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        self._list(block)

    def release_free_segments(self) -> int:
        """Release segments that are one free block; returns their bytes."""
        whole = [block for block in self._at.values() if block.before is None and block.after is None]
        for block in whole:
            self._unlist(block)
        return sum(block.size for block in whole)

    def _split(self, block: _Block, size: int) -> None:
        if block.size - size < self._least_remainder:
            return
        rest = _Block(self, block.address + size, block.size - size)
        rest.before, rest.after = block, block.after
        if rest.after is not None:
            rest.after.before = rest
        block.after, block.size = rest, size
        self._list(rest)

    def _list(self, block: _Block) -> None:
        block.free = True
        insort(self._free, (block.size, block.address))
        self._at[block.address] = block

    def _unlist(self, block: _Block) -> None:
        self._free.pop(bisect_left(self._free, (block.size, block.address)))
        del self._at[block.address]
        block.free = False
