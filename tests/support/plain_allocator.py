"""PyTorch's caching allocator in plain steps, one object for each block: what the fast one must repeat.

It knows the rules (see `foretrain.prediction.memory.allocator`), but none of the shortcuts.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from foretrain.prediction.memory.allocator import (
    FREE,
    LARGE_ROUNDING_BYTES,
    LARGE_SEGMENT_BYTES,
    MIN_BLOCK_BYTES,
    MIN_LARGE_BYTES,
    RELEASE,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    Event,
    Footprint,
    rounded_bytes,
)


def simulate_plainly(events: Iterable[Event], capacity_bytes: float | None = None) -> Footprint:
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
    return Footprint(allocated, reserved, tuple(sorted(live)), failed_at)


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
