"""Automatic layer cuts: a chain of positions split into k contiguous stages so that the slowest is fastest.

With compute time w, state bytes q (parameters with gradients and optimizer state), saved activations a and
crossing bytes x of the cut before a position, the stage of positions i ... j-1 takes

    t(i, j) = Σ w + (x[i] + x[j]) / B + latency of its cuts     it sends x[j] forward, gradients of x[i] back
    m(i, j) = Σ q + in_flight · (Σ a + x[i])                    it holds what it receives until its backward

and the answer minimises max t subject to m <= the device's memory. Both are sums of a term of i and a term
of j (see `contiguous_stages`). Among cuts of the same pace those with the least traffic are taken. Crossing
bytes hold every tensor produced before a cut and read after it, once per cut: a skip connection over several
stages is handed from stage to stage.

Reference: dynamic programming over contiguous stages as in D. Narayanan et al., "PipeDream", SOSP 2019,
section 3.1, without replication, with memory limits that depend on the stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.prediction.strategies.contiguous_stages import StageTerms, best_bounds
from foretrain.units import format_bytes

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chain:
    """A model in order of execution: n positions and the n - 1 places between them where it can be cut.

    Times and `saved_bytes` are of one micro-batch; `crossing_bytes[i]` crosses a cut after position i.
    `tied` names parameters read at positions far apart: each of them is charged at every such position.
    """

    forward_seconds: Floats
    backward_seconds: Floats
    parameter_bytes: Floats
    saved_bytes: Floats
    crossing_bytes: Floats
    optimizer_seconds: Floats | None = None
    names: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        positions = len(self.forward_seconds)
        for what in ("backward_seconds", "parameter_bytes", "saved_bytes"):
            if len(getattr(self, what)) != positions:
                raise InvalidRequest(f"{what} has {len(getattr(self, what))} positions, not {positions}")
        if positions == 0 or len(self.crossing_bytes) != positions - 1:
            raise InvalidRequest(
                f"{positions} positions have {positions - 1} cuts, not {len(self.crossing_bytes)}"
            )

    def __len__(self) -> int:
        return len(self.forward_seconds)


@dataclass(frozen=True)
class Link:
    """What sending over a cut costs: time per byte and per message, as the link really achieves."""

    seconds_per_byte: float = 0.0
    latency_seconds: float = 0.0


def one_in_flight(stages: int) -> Sequence[int]:
    """No pipelining: each stage holds one micro-batch."""
    return (1,) * stages


@dataclass(frozen=True)
class StageMemory:
    """Memory of the devices, and what a stage puts there.

    `capacity_bytes` is of each device, or one number for all; `state_bytes_per_parameter_byte` counts the
    parameter itself, its gradient and optimizer state (FP32 Adam: 4); `in_flight` gives, for a number of
    stages, how many micro-batches each stage holds (`peak_in_flight` of a schedule).
    """

    capacity_bytes: float | Sequence[float]
    state_bytes_per_parameter_byte: float = 1.0
    in_flight: Callable[[int], Sequence[int]] = one_in_flight

    def held(self, stages: int) -> Sequence[int]:
        """Micro-batches each stage holds."""
        held = self.in_flight(stages)
        if len(held) != stages:
            raise InvalidRequest(f"{len(held)} numbers of micro-batches in flight for {stages} stages")
        return held

    def capacities(self, stages: int) -> Floats:
        """Memory of each stage's device; where there are more stages than devices, of the smallest device."""
        given = np.atleast_1d(np.asarray(self.capacity_bytes, dtype=np.float64))
        if len(given) == 1:
            return np.full(stages, given[0])
        return np.concatenate([given[:stages], np.full(max(0, stages - len(given)), given.min())])


FREE = Link()
UNLIMITED = StageMemory(float("inf"))


@dataclass(frozen=True)
class Cuts:
    """Stage s runs positions `bounds[s]` to `bounds[s + 1] - 1`; `cut_bytes` cross between the stages."""

    bounds: tuple[int, ...]
    stage_seconds: tuple[float, ...]
    stage_bytes: tuple[float, ...]
    cut_bytes: tuple[float, ...]
    tied: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Time of the slowest stage with its cut traffic: the pace of the pipeline."""
        return max(self.stage_seconds)


def cut(chain: Chain, stages: int, link: Link = FREE, memory: StageMemory = UNLIMITED) -> Cuts | Infeasible:
    """The cuts into `stages` stages whose slowest is fastest, or why there are none."""
    if stages < 1:
        raise InvalidRequest(f"cannot cut a model into {stages} stages; ask for at least 1")
    if stages > len(chain):
        return Infeasible(
            "cutting the model",
            f"{stages} positions for as many stages",
            f"{len(chain)}",
            f"use at most {len(chain)} stages",
        )
    problem = _Problem(chain, link, memory)
    if not problem.fits(stages):
        return problem.why_not(stages)
    return evaluated(chain, best_bounds(problem.terms(stages)), link, memory)


def evaluated(chain: Chain, bounds: Sequence[int], link: Link, memory: StageMemory) -> Cuts:
    """Time and memory of the stages of given cuts."""
    problem = _Problem(chain, link, memory)
    held = memory.held(len(bounds) - 1)
    spans = list(pairwise(bounds))
    return Cuts(
        bounds=tuple(int(bound) for bound in bounds),
        stage_seconds=tuple(float(problem.time_from[i] + problem.time_to[j]) for i, j in spans),
        stage_bytes=tuple(
            float(problem.bytes_from(flight)[i] + problem.bytes_to(flight)[j])
            for flight, (i, j) in zip(held, spans, strict=True)
        ),
        cut_bytes=tuple(float(chain.crossing_bytes[bound - 1]) for bound in bounds[1:-1]),
        tied=chain.tied,
    )


class _Problem:
    """A chain's times and bytes as sums of a term of a stage's first bound and a term of its last."""

    def __init__(self, chain: Chain, link: Link, memory: StageMemory) -> None:
        self.chain, self.memory = chain, memory
        inner = np.asarray(chain.crossing_bytes, dtype=np.float64)
        self.crossing = np.concatenate([[0.0], inner, [0.0]])
        sending = self.crossing * link.seconds_per_byte
        sending[1:-1] += link.latency_seconds
        elapsed = _summed(np.add(chain.forward_seconds, chain.backward_seconds))
        self.time_from, self.time_to = sending - elapsed, sending + elapsed
        self.state = _summed(chain.parameter_bytes) * memory.state_bytes_per_parameter_byte
        self.saved = _summed(chain.saved_bytes)

    def bytes_from(self, in_flight: int) -> Floats:
        """Term of the first bound in a stage's memory."""
        return in_flight * (self.crossing - self.saved) - self.state

    def bytes_to(self, in_flight: int) -> Floats:
        """Term of the last bound in a stage's memory."""
        return self.state + in_flight * self.saved

    def terms(self, stages: int) -> StageTerms:
        """The terms of all stages."""
        held = self.memory.held(stages)
        capacities = self.memory.capacities(stages)
        return StageTerms(
            self.time_from,
            self.time_to,
            self.crossing,
            np.array([self.bytes_from(in_flight) for in_flight in held]),
            np.array([room - self.bytes_to(flight) for room, flight in zip(capacities, held, strict=True)]),
        )

    def fits(self, stages: int, spare: float = 1.0) -> bool:
        """Whether some cuts respect the memory of all stages, if it were `spare` times as large: O(k n).

        Whether a bound is reached needs only the least term of the bounds reached before it.
        """
        reached = np.zeros(len(self.crossing), dtype=bool)
        reached[0] = True
        capacities = self.memory.capacities(stages) * spare
        for in_flight, capacity in zip(self.memory.held(stages), capacities, strict=True):
            least = np.minimum.accumulate(np.where(reached, self.bytes_from(in_flight), np.inf))
            reached = np.concatenate([[False], least[:-1] <= capacity - self.bytes_to(in_flight)[1:]])
        return bool(reached[-1])

    def why_not(self, stages: int) -> Infeasible:
        """The tightest constraint: what the fullest stage needs at the least, and how many would do."""
        low, high = 1.0, 2.0
        while not self.fits(stages, high):
            low, high = high, high * 2
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self.fits(stages, middle) else (middle, high)
        available = float(self.memory.capacities(stages).min())
        return Infeasible(
            f"the fullest of {stages} {'stage' if stages == 1 else 'stages'}",
            f"{format_bytes(high * available)} of memory",
            format_bytes(available),
            self._fewest_stages(stages),
        )

    def _fewest_stages(self, stages: int) -> str:
        """How many stages more would do, where it is known how many micro-batches they hold."""
        most = min(len(self.chain), max(4 * stages, 64))
        tried = 0
        for more in range(stages + 1, most + 1):
            if len(self.memory.in_flight(more)) == more:
                tried = more
                if self.fits(more):
                    return f"{more} stages are the fewest that fit"
        return f"no number of stages up to {tried} fits" if tried else "use devices with more memory"


def _summed(values: ArrayLike) -> Floats:
    """Running sums with a leading 0: the sum of positions i ... j-1 is s[j] - s[i]."""
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])
