"""The first steps of training as events of the allocator.

In the first step there is no optimizer state while activations are allocated and freed; the state is then
allocated from cached memory, so that the activations of the next step no longer fit the gaps. The third step
repeats the second, with the next batch in the place of the one before. The order of events does not depend on
sizes: it is derived once for all batch sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.memory.allocator import EMPTY_CACHE, Footprint, Integers, StepEvents
from foretrain.prediction.memory.lifetimes import USES, Allocations, TensorLifetimes
from foretrain.prediction.strategies.program import MemoryOptions

STEPS = 3
"""Simulated steps: without optimizer state, with new state, steady."""

_REMEMBERED = 16
"""Orders of events that are remembered; all batch sizes of a graph have one."""


class Timetable(NamedTuple):
    """Allocations with their sizes and uses, and the events that allocate and free them."""

    steps: StepEvents
    sizes: Integers
    uses: Integers

    def bytes_by_use(self, footprint: Footprint) -> NDArray[np.float64]:
        """Requested bytes at the peak of a footprint, in the order of `MemoryUse`."""
        live = np.array(footprint.live_at_peak, np.int64)
        return np.bincount(self.uses[live], self.sizes[live], len(USES)).astype(float)


def first_steps(lifetimes: TensorLifetimes, options: MemoryOptions) -> Timetable:
    """The first steps on the main stream, after what is allocated before them."""
    given, gradients = lifetimes, lifetimes.gradients
    lasting = gradients[(gradients.ends >= given.calls) & options.keep_gradients]
    before = (given.resident, given.state, given.inputs, given.inputs, given.handles)
    groups = (*before, given.passing, gradients, lasting)
    steps = _steps_of_training(
        given.calls,
        given.optimizer_start,
        tuple(len(group) for group in groups),
        tuple(_spans(group) for group in (given.handles, given.passing, gradients)),
        given.tuned,
        options.keep_gradients,
        options.prefetching_loaders == 0,
    )
    return _timetable(steps, groups)


def exchange_steps(lifetimes: TensorLifetimes) -> Timetable:
    """A step on the streams of exchanges.

    PyTorch's allocator returns a block to the stream it was allocated on, so that gathered parameters and
    activations do not fragment each other.
    """
    given = lifetimes.communication
    keys = np.arange(len(given))
    events = _in_order([(given.starts, keys)], [(given.ends, ~keys)])
    return _timetable(StepEvents(len(given), (events,)), (given,))


def _timetable(steps: StepEvents, groups: Sequence[Allocations]) -> Timetable:
    sizes, uses = ([getattr(group, column) for group in groups] for column in ("bytes", "uses"))
    return Timetable(steps, np.concatenate(sizes), np.concatenate(uses))


def _spans(group: Allocations) -> bytes:
    return np.stack((group.starts, group.ends)).tobytes()


@lru_cache(maxsize=_REMEMBERED)
def _steps_of_training(
    calls: int,
    optimizer_start: int,
    counts: tuple[int, ...],
    spans: tuple[bytes, ...],
    tuned: frozenset[int],
    keeps_gradients: bool,
    loads: bool,
) -> StepEvents:
    """The order of events: numbers of allocations by group, first and last calls of those that have some."""
    bounds = np.cumsum(counts)
    numbers = np.split(np.arange(bounds[-1]), bounds[:-1])
    resident, state, batch, next_batch, handles, passing, gradients, added = numbers
    at_handle, pass_spans, gradient_spans = (np.frombuffer(each, np.int64).reshape(2, -1) for each in spans)
    starts = [(pass_spans[0], passing), (gradient_spans[0], gradients)]
    ends = [(pass_spans[1], ~passing), (gradient_spans[1], ~gradients)]
    later_starts, later_ends = starts, ends
    if keeps_gradients:  # new gradients are added to the kept ones and freed immediately
        lasts = gradient_spans[1] >= calls
        reduced, added_at = gradient_spans[:, ~lasts], gradient_spans[0, lasts]
        ends = [ends[0], (reduced[1], ~gradients[~lasts])]
        later_starts = [starts[0], (reduced[0], gradients[~lasts]), (added_at, added)]
        later_ends = [*ends, (added_at + 1, ~added)]
    once = [
        (at_handle[0], handles),
        (np.full(len(state), optimizer_start), state),
        (np.array(sorted(tuned), np.int64), np.full(len(tuned), EMPTY_CACHE)),
    ]
    first = _in_order(once, starts, ends, calls=calls)
    later = _in_order(later_starts, later_ends, calls=calls)
    events = []
    for step in range(STEPS):
        new, old = (batch, next_batch) if step % 2 == 0 else (next_batch, batch)
        loaded = [new, ~old] if loads else []
        events.append(np.concatenate([resident, *loaded, first] if step == 0 else [*loaded, later]))
    return StepEvents(int(bounds[-1]), tuple(events))


_AtCalls = Sequence[tuple[Integers, Integers]]
"""Calls, and the events at them."""


def _in_order(*groups: _AtCalls, calls: int | None = None) -> Integers:
    """Events in the order of their calls, at one call in the order of the groups; none beyond `calls`."""
    ranks = [np.full(len(at), rank) for rank, group in enumerate(groups) for at, _ in group]
    at = np.concatenate([at for group in groups for at, _ in group])
    events = np.concatenate([events for group in groups for _, events in group])
    order = np.lexsort((np.concatenate(ranks), at))
    if calls is not None:
        order = order[(at[order] >= 0) & (at[order] <= calls)]
    return events[order]
