"""Split of a global batch over unequal workers such that all finish together, and which workers take part.

    minimise max over i of t_i(b_i) + sync(workers)      Σ b_i = B, min_i <= b_i <= largest_i, whole samples

For step times that do not decrease with the batch, the smallest T is found by bisection on the samples that
all workers finish by T. Without fixed costs this is the split by speed: of two workers, one 20 times faster,
the slow one takes 1/21. A slow worker may not be worth using: it adds synchronisation, has a fixed time per
step and may get fewer samples than its minimum. All sets of workers are tried, by the number of each kind; if
there are more than a few thousand sets, only the fastest 1, 2, 3 ... workers.

Gradients of uneven batches must be averaged with weights b_i / B to equal those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product, repeat
from math import prod

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.units import format_duration

_MAX_SETS = 4096


@dataclass(frozen=True)
class Worker:
    """A device: step time by batch (never decreasing), largest and smallest batch.

    Workers that share `seconds_at` and both limits are of one kind.
    """

    name: str
    seconds_at: Callable[[int], float]
    largest_batch: int
    min_batch: int = 1

    @property
    def kind(self) -> tuple[Callable[[int], float], int, int]:
        """Equal for workers that are interchangeable."""
        return self.seconds_at, self.largest_batch, self.min_batch


@dataclass(frozen=True)
class Affine:
    """Step time fixed + per_sample · batch."""

    fixed_seconds: float
    seconds_per_sample: float

    def __call__(self, batch: int) -> float:
        return self.fixed_seconds + self.seconds_per_sample * batch


@dataclass(frozen=True)
class Split:
    """Samples of each worker (0: excluded), the time of the step, and whether the slow workers help."""

    batches: tuple[int, ...]
    computing_seconds: float
    sync_seconds: float
    excluded: tuple[str, ...]
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
    """The fastest split of a batch; `sync_seconds` depends on the number of workers that take part."""
    if global_batch < 1 or not workers:
        raise InvalidRequest(f"cannot split a batch of {global_batch} over {len(workers)} workers")
    for worker in workers:
        if not 1 <= worker.min_batch <= worker.largest_batch:
            raise InvalidRequest(
                f"{worker.name}: min_batch must be between 1 and largest_batch {worker.largest_batch}, got "
                f"{worker.min_batch}"
            )
    problem = _Problem(global_batch, tuple(workers), sync_seconds)
    splits = [split for members in problem.sets() if (split := problem.split(members)) is not None]
    if not splits:
        return problem.infeasible()
    best = min(splits, key=lambda split: (split.seconds, len(split.excluded)))
    return replace(best, verdict=problem.verdict(best))


def balanced_batches(global_batch: int, workers: Sequence[Worker]) -> tuple[int, ...] | None:
    """Batches with which all workers finish together; None if their limits forbid it."""
    problem = _Problem(global_batch, tuple(workers), no_sync)
    split = problem.split(frozenset(range(len(workers))))
    return None if split is None else split.batches


@dataclass(frozen=True, eq=False)
class _Problem:
    """A batch to split over workers; `cached_seconds` holds the step times computed so far."""

    batch: int
    workers: tuple[Worker, ...]
    sync_seconds: Callable[[int], float]
    cached_seconds: dict[tuple[Callable[[int], float], int], float] = field(default_factory=dict)

    def seconds(self, worker: Worker, batch: int) -> float:
        """A worker's step time."""
        key = (worker.seconds_at, batch)
        if key not in self.cached_seconds:
            self.cached_seconds[key] = worker.seconds_at(batch)
        return self.cached_seconds[key]

    def sets(self) -> Iterator[frozenset[int]]:
        """Sets of workers to try: every number of each kind or, if there are too many, the fastest few."""
        kinds: dict[object, list[int]] = {}
        for index, worker in enumerate(self.workers):
            kinds.setdefault(worker.kind, []).append(index)
        if prod(len(members) + 1 for members in kinds.values()) <= _MAX_SETS:
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

    def split(self, members: frozenset[int]) -> Split | None:
        """The split over a set of workers; None if their limits do not allow it."""
        active = [self.workers[index] for index in sorted(members)]
        least = sum(worker.min_batch for worker in active)
        if not active or not least <= self.batch <= sum(worker.largest_batch for worker in active):
            return None
        batches = iter(self._finishing_together(active))
        given = tuple(next(batches) if index in members else 0 for index in range(len(self.workers)))
        return Split(
            batches=given,
            computing_seconds=max(self.seconds(w, b) for w, b in zip(self.workers, given, strict=True) if b),
            sync_seconds=self.sync_seconds(len(active)),
            excluded=tuple(w.name for w, b in zip(self.workers, given, strict=True) if not b),
        )

    def _finishing_together(self, active: list[Worker]) -> list[int]:
        """Bisect for the shortest time in which the workers finish the batch, then distribute the remainder.

        The remainder adds no time; each worker gets a part in proportion to the samples it can still take.
        """
        fewest = [worker.min_batch for worker in active]
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
        """The largest batch from `low` to `high` that a worker finishes in time; `low` if none."""
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.seconds(worker, middle) <= seconds else (low, middle - 1)
        return low

    def verdict(self, best: Split) -> str:
        """Whether the slow workers help, from the step with and without them."""
        if best.excluded:
            return self._why_excluded(best)
        if len(self.workers) == 1:
            return f"{self.workers[0].name} alone takes {format_duration(best.seconds)} per step"
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

    def _why_excluded(self, best: Split) -> str:
        names = " and ".join(best.excluded)
        verb = "does" if len(best.excluded) == 1 else "do"
        with_all = self.split(frozenset(range(len(self.workers))))
        if with_all is None:
            return (
                f"{names} {verb} not help: the minimum batches of all workers exceed {self.batch} samples; "
                f"without, a step takes {format_duration(best.seconds)}"
            )
        return (
            f"{names} {verb} not help: a step takes {format_duration(with_all.seconds)} with all workers, "
            f"{format_duration(best.seconds)} without"
        )

    def infeasible(self) -> Infeasible:
        """Why no set of workers can train the batch."""
        largest = sum(worker.largest_batch for worker in self.workers)
        if largest < self.batch:
            return Infeasible(
                "the global batch",
                f"room for {self.batch} samples",
                f"room for {largest}",
                f"use a batch of at most {largest}, or accumulate gradients",
            )
        least = min(worker.min_batch for worker in self.workers)
        if self.batch < least:
            return Infeasible(
                "the smallest minimum batch of the workers",
                f"{least} samples",
                f"{self.batch}",
                f"use a global batch of {least} or more",
            )
        return Infeasible(
            "the global batch",
            f"workers with minimum batches of at most {self.batch} samples and largest of at least as many",
            "no such set of workers",
            "lower the minimum batches, or use another global batch",
        )


def _in_proportion(amount: int, room: Sequence[int]) -> list[int]:
    """Whole parts of an amount in proportion to the room for each, by largest remainders."""
    whole = sum(room)
    if not amount or not whole:
        return [0] * len(room)
    parts = [divmod(amount * each, whole) for each in room]
    given = [part for part, _ in parts]
    by_remainder = sorted(range(len(room)), key=lambda index: -parts[index][1])
    for index in by_remainder[: amount - sum(given)]:
        given[index] += 1
    return given
