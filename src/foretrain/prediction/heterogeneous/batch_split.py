"""Unequal devices: an uneven batch, split so that all finish together, and whether the slow ones help at all.

    minimise max over i of t_i(b_i) + sync(workers)      Σ b_i = B, least_i <= b_i <= largest_i, whole samples

For step times that do not fall with the batch the least T is found by bisection on what all can finish by T.
Without fixed costs it is the split by speed: of two nodes, one 20 times faster, the slow one takes 1/21.
Which workers take part is part of the question: a slow one costs synchronisation, has a fixed time per step,
and may be left with fewer samples than are of use to it. All choices are tried, workers alike by kind; with
more than some thousand of them only the fastest 1, 2, 3 ... workers.

Gradients of uneven batches must be averaged with weights b_i / B to be those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product, repeat
from math import prod

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.units import format_duration

_MOST_CHOICES = 4096


@dataclass(frozen=True)
class Worker:
    """A device: its step time at a batch (not falling with it), its largest batch, its least useful one.

    Workers that share `seconds_at` and both limits are alike.
    """

    name: str
    seconds_at: Callable[[int], float]
    largest_batch: int
    least_batch: int = 1

    @property
    def kind(self) -> tuple[Callable[[int], float], int, int]:
        """What makes two workers alike."""
        return self.seconds_at, self.largest_batch, self.least_batch


@dataclass(frozen=True)
class Affine:
    """Step time fixed + per_sample · batch."""

    fixed_seconds: float
    seconds_per_sample: float

    def __call__(self, batch: int) -> float:
        return self.fixed_seconds + self.seconds_per_sample * batch


@dataclass(frozen=True)
class Split:
    """Samples of each worker (0: left out), the step they take, and in words whether the slow ones help."""

    batches: tuple[int, ...]
    computing_seconds: float
    sync_seconds: float
    left_out: tuple[str, ...]
    verdict: str = ""

    @property
    def seconds(self) -> float:
        """Time of a step."""
        return self.computing_seconds + self.sync_seconds


def no_sync(workers: int) -> float:
    """Synchronisation that costs nothing."""
    del workers
    return 0.0


def split_batch(
    global_batch: int, workers: Sequence[Worker], sync_seconds: Callable[[int], float] = no_sync
) -> Split | Infeasible:
    """The fastest split of a batch; `sync_seconds` of the number of workers that take part."""
    if global_batch < 1 or not workers:
        raise InvalidRequest(f"cannot split a batch of {global_batch} over {len(workers)} workers")
    for worker in workers:
        if not 1 <= worker.least_batch <= worker.largest_batch:
            raise InvalidRequest(
                f"{worker.name}: batches from {worker.least_batch} to {worker.largest_batch}; the least must "
                "be at least 1 and at most the largest"
            )
    problem = _Problem(global_batch, tuple(workers), sync_seconds)
    tried = [split for chosen in problem.choices() if (split := problem.split(chosen)) is not None]
    if not tried:
        return problem.why_not()
    best = min(tried, key=lambda split: (split.seconds, len(split.left_out)))
    return Split(
        best.batches, best.computing_seconds, best.sync_seconds, best.left_out, problem.verdict(best)
    )


def share_out(global_batch: int, workers: Sequence[Worker]) -> tuple[int, ...] | None:
    """Batches of workers that all take part, so that they finish together; None if their limits forbid it."""
    problem = _Problem(global_batch, tuple(workers), no_sync)
    split = problem.split(frozenset(range(len(workers))))
    return None if split is None else split.batches


class _Problem:
    def __init__(self, batch: int, workers: tuple[Worker, ...], sync_seconds: Callable[[int], float]) -> None:
        self.batch, self.workers, self.sync_seconds = batch, workers, sync_seconds
        self._known: dict[tuple[Callable[[int], float], int], float] = {}

    def seconds(self, worker: Worker, batch: int) -> float:
        """A worker's step time, asked for only once."""
        key = (worker.seconds_at, batch)
        if key not in self._known:
            self._known[key] = worker.seconds_at(batch)
        return self._known[key]

    def choices(self) -> Iterator[frozenset[int]]:
        """Sets of workers to try: every number of each kind, or if too many the fastest few."""
        kinds: dict[object, list[int]] = {}
        for index, worker in enumerate(self.workers):
            kinds.setdefault(worker.kind, []).append(index)
        if prod(len(members) + 1 for members in kinds.values()) <= _MOST_CHOICES:
            for counts in product(*(range(len(members) + 1) for members in kinds.values())):
                taken = zip(kinds.values(), counts, strict=True)
                yield frozenset(index for members, count in taken for index in members[:count])
            return
        by_speed = sorted(range(len(self.workers)), key=self._seconds_per_sample)
        for count in range(1, len(by_speed) + 1):
            yield frozenset(by_speed[:count])

    def _seconds_per_sample(self, index: int, batch: int | None = None) -> float:
        worker = self.workers[index]
        at = batch or min(worker.largest_batch, self.batch)
        return self.seconds(worker, at) / at

    def split(self, chosen: frozenset[int]) -> Split | None:
        """The split over the chosen workers, or None if their limits do not allow it."""
        active = [self.workers[index] for index in sorted(chosen)]
        least = sum(worker.least_batch for worker in active)
        if not active or not least <= self.batch <= sum(worker.largest_batch for worker in active):
            return None
        batches = iter(self._finishing_together(active))
        given = tuple(next(batches) if index in chosen else 0 for index in range(len(self.workers)))
        return Split(
            batches=given,
            computing_seconds=max(self.seconds(w, b) for w, b in zip(self.workers, given, strict=True) if b),
            sync_seconds=self.sync_seconds(len(active)),
            left_out=tuple(w.name for w, b in zip(self.workers, given, strict=True) if not b),
        )

    def _finishing_together(self, active: list[Worker]) -> list[int]:
        """Bisect for the least time by which all can finish the batch, then hand out what is left.

        What is left costs no time whoever takes it: each gets of it in proportion to what it can still do.
        """
        fewest = [worker.least_batch for worker in active]
        most = [min(worker.largest_batch, self.batch) for worker in active]
        low, high = -1.0, max(map(self.seconds, active, most))
        while high - low > 1e-13 * high and (middle := (low + high) / 2) not in {low, high}:
            done = list(map(self._done_by, active, repeat(middle), fewest, most))
            if sum(done) >= self.batch:
                high, most = middle, done
            else:
                low, fewest = middle, done
        room = [more - fewer for fewer, more in zip(fewest, most, strict=True)]
        given = _in_proportion(self.batch - sum(fewest), room)
        return [fewer + extra for fewer, extra in zip(fewest, given, strict=True)]

    def _done_by(self, worker: Worker, seconds: float, low: int, high: int) -> int:
        """The largest batch from `low` to `high` a worker finishes by then; `low` if it finishes none."""
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.seconds(worker, middle) <= seconds else (low, middle - 1)
        return low

    def verdict(self, best: Split) -> str:
        """Whether the slow workers help, from the step computed again without, or with, them."""
        if best.left_out:
            return self._why_left_out(best)
        if len(self.workers) == 1:
            return f"{self.workers[0].name} alone takes {format_duration(best.seconds)} a step"
        slow = max(range(len(self.workers)), key=lambda i: self._seconds_per_sample(i, best.batches[i]))
        name, share = self.workers[slow].name, best.batches[slow]
        without = self.split(frozenset(range(len(self.workers))) - {slow})
        if without is None:
            return (
                f"{name} takes {share} of {self.batch} samples; without it the others cannot hold the batch"
            )
        saved = 1 - best.seconds / without.seconds
        return (
            f"{name} helps: with {share} of {self.batch} samples it shortens a step from "
            f"{format_duration(without.seconds)} to {format_duration(best.seconds)} ({saved:.1%})"
        )

    def _why_left_out(self, best: Split) -> str:
        names = " and ".join(best.left_out)
        verb = "does" if len(best.left_out) == 1 else "do"
        everyone = self.split(frozenset(range(len(self.workers))))
        if everyone is None:
            return (
                f"{names} {verb} not help: the least batches of all workers are together more than "
                f"{self.batch} samples; without, a step takes {format_duration(best.seconds)}"
            )
        return (
            f"{names} {verb} not help: a step takes {format_duration(everyone.seconds)} with all workers, "
            f"{format_duration(best.seconds)} without"
        )

    def why_not(self) -> Infeasible:
        """Nobody can hold the batch, or it is less than any worker can use."""
        largest = sum(worker.largest_batch for worker in self.workers)
        if largest < self.batch:
            return Infeasible(
                "the global batch",
                f"room for {self.batch} samples",
                f"room for {largest}",
                f"use a batch of at most {largest}, or accumulate gradients",
            )
        least = min(worker.least_batch for worker in self.workers)
        if self.batch < least:
            return Infeasible(
                "the least useful batch of any worker",
                f"{least} samples",
                f"{self.batch}",
                f"use a global batch of {least} or more",
            )
        return Infeasible(
            "the global batch",
            f"workers whose least and largest batches add up to below and above {self.batch}",
            "no such set of workers",
            "lower the least batches, or use another global batch",
        )


def _in_proportion(amount: int, room: Sequence[int]) -> list[int]:
    """Whole parts of an amount in proportion to the room for each, largest remainders first."""
    whole = sum(room)
    if not amount or not whole:
        return [0] * len(room)
    parts = [divmod(amount * each, whole) for each in room]
    given = [part for part, _ in parts]
    by_remainder = sorted(range(len(room)), key=lambda index: -parts[index][1])
    for index in by_remainder[: amount - sum(given)]:
        given[index] += 1
    return given
