"""Cuts of a model into pipeline stages: a step as a chain of positions, split to minimise the slowest stage.

With compute time w, state bytes q (parameters with gradients and optimizer state), saved activations a and
crossing bytes x of the cut before a position, the stage of positions i ... j-1 takes

    t(i, j) = Σ w + (x[i] + x[j]) / B + latency of its cuts     it sends x[j] forward, gradients of x[i] back
    m(i, j) = Σ q + in_flight · (Σ a + x[i])                    it keeps its inputs until the backward pass

The cuts minimise max t subject to m <= memory of the device. Both are sums of a term of i and a term of j
(see `stages.best_bounds`). Among cuts with the same slowest stage, those with the least traffic are chosen.
Crossing bytes are those of every tensor produced before a cut and read after it, once per cut: a skip
connection over several stages is forwarded from stage to stage.

Reference: dynamic programming over contiguous stages as in D. Narayanan et al., "PipeDream", SOSP 2019,
section 3.1, without replication, with memory limits that depend on the stage.

A position of the chain is one forward call with the views and weight casts that lead to it, so that no cut
separates a weight from its use:

* a backward call belongs to the position of the call it differentiates, a recomputed call to that it repeats;
* a parameter belongs to the first position that reads it; a tied parameter is counted at each module that
  reads it, since a cut between them creates a copy, and is listed in `Chain.tied`;
* an activation that the backward pass reads is counted where it was computed;
* a tensor computed before a cut and read after it crosses the cut once. Inputs do not cross: labels and masks
  are passed to the stage that reads them;
* optimizer calls are divided in proportion to the bytes of the parameters.

Tensors that live only within a stage's own forward or backward pass (temporaries) are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.pipeline.stages import StageTerms, best_bounds
from foretrain.prediction.strategies.program import unit_of
from foretrain.units import format_bytes
from foretrain.workloads.graph import Call, Graph, Nature, Phase, Role

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chain:
    """A model in order of execution: n positions with n - 1 possible cuts between them.

    Times and `saved_bytes` are of one micro-batch; `crossing_bytes[i]` crosses a cut after position i.
    `tied` names parameters that several modules read; each is counted at every position that reads it.
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
                raise InvalidRequest(f"{what} must have {positions} entries, got {len(getattr(self, what))}")
        if positions == 0 or len(self.crossing_bytes) != positions - 1:
            raise InvalidRequest(
                f"crossing_bytes must have {positions - 1} entries, got {len(self.crossing_bytes)}"
            )

    def __len__(self) -> int:
        return len(self.forward_seconds)


@dataclass(frozen=True)
class StageLink:
    """Cost of a message over a cut: achieved time per byte, and latency."""

    seconds_per_byte: float = 0.0
    latency_seconds: float = 0.0


def one_in_flight(stages: int) -> Sequence[int]:
    """No pipelining: each stage holds one micro-batch."""
    return (1,) * stages


@dataclass(frozen=True)
class StageMemory:
    """Memory of the devices, and what a stage needs of it.

    `capacity_bytes` is that of each device, or one number for all. `state_bytes_per_parameter_byte` counts
    the parameter, its gradient and its optimizer state (FP32 Adam: 4). `in_flight` gives the micro-batches
    each stage holds, from the number of stages (`peak_in_flight` of a schedule).
    """

    capacity_bytes: float | Sequence[float]
    state_bytes_per_parameter_byte: float = 1.0
    in_flight: Callable[[int], Sequence[int]] = one_in_flight

    def held(self, stages: int) -> Sequence[int]:
        """Micro-batches each stage holds."""
        held = self.in_flight(stages)
        if len(held) != stages:
            raise InvalidRequest(f"in_flight must return {stages} numbers, one per stage, got {len(held)}")
        return held

    def capacities(self, stages: int) -> Floats:
        """Memory of the device of each stage; of the smallest device for stages beyond the last device."""
        given = np.atleast_1d(np.asarray(self.capacity_bytes, dtype=np.float64))
        if len(given) == 1:
            return np.full(stages, given[0])
        return np.concatenate([given[:stages], np.full(max(0, stages - len(given)), given.min())])


FREE = StageLink()
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
        """Time of the slowest stage including its traffic."""
        return max(self.stage_seconds)


def cut(
    chain: Chain, stages: int, link: StageLink = FREE, memory: StageMemory = UNLIMITED
) -> Cuts | Infeasible:
    """The cuts into `stages` stages that minimise the time of the slowest; `Infeasible` if none fit."""
    if stages < 1:
        raise InvalidRequest(f"stages must be at least 1, got {stages}")
    if stages > len(chain):
        return Infeasible(
            "cutting the model",
            f"{stages} positions, one for each stage",
            f"{len(chain)}",
            f"use at most {len(chain)} stages",
        )
    problem = _Problem(chain, link, memory)
    if not problem.fits(stages):
        return problem.infeasible(stages)
    return evaluate_cuts(chain, best_bounds(problem.terms(stages)), link, memory)


def evaluate_cuts(chain: Chain, bounds: Sequence[int], link: StageLink, memory: StageMemory) -> Cuts:
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
    """Times and bytes of a chain as sums of a term of a stage's first bound and a term of its last."""

    def __init__(self, chain: Chain, link: StageLink, memory: StageMemory) -> None:
        self.chain, self.memory = chain, memory
        inner = np.asarray(chain.crossing_bytes, dtype=np.float64)
        self.crossing = np.concatenate([[0.0], inner, [0.0]])
        sending = self.crossing * link.seconds_per_byte
        sending[1:-1] += link.latency_seconds
        elapsed = _accumulate(np.add(chain.forward_seconds, chain.backward_seconds))
        self.time_from, self.time_to = sending - elapsed, sending + elapsed
        self.state = _accumulate(chain.parameter_bytes) * memory.state_bytes_per_parameter_byte
        self.saved = _accumulate(chain.saved_bytes)

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
        """Whether some cuts fit the memory of all stages, multiplied by `spare`: O(k n).

        A bound is reachable if the least term of the bounds reachable before it fits.
        """
        reached = np.zeros(len(self.crossing), dtype=bool)
        reached[0] = True
        capacities = self.memory.capacities(stages) * spare
        for in_flight, capacity in zip(self.memory.held(stages), capacities, strict=True):
            least = np.minimum.accumulate(np.where(reached, self.bytes_from(in_flight), np.inf))
            reached = np.concatenate([[False], least[:-1] <= capacity - self.bytes_to(in_flight)[1:]])
        return bool(reached[-1])

    def infeasible(self, stages: int) -> Infeasible:
        """The tightest constraint: the least memory of the fullest stage, and the fewest stages that fit."""
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
        """The fewest stages that fit, as far as the micro-batches they hold are known."""
        most = min(len(self.chain), max(4 * stages, 64))
        tried = 0
        for more in range(stages + 1, most + 1):
            if len(self.memory.in_flight(more)) == more:
                tried = more
                if self.fits(more):
                    return f"{more} stages are the fewest that fit"
        return f"no number of stages up to {tried} fits" if tried else "use devices with more memory"


def _accumulate(values: ArrayLike) -> Floats:
    """Running sums with a leading 0: the sum of positions i ... j-1 is s[j] - s[i]."""
    return np.concatenate([[0.0], np.cumsum(np.asarray(values, dtype=np.float64))])


_WEIGHTS = frozenset({Role.PARAMETER, Role.CAST_WEIGHT})
_NOT_SENT = _WEIGHTS | {Role.MODULE_BUFFER, Role.INPUT, Role.OPTIMIZER_STATE}


def chain_of(graph: Graph, seconds: Sequence[float]) -> Chain:
    """The chain of a graph whose calls take the given times."""
    if len(seconds) != len(graph.calls):
        raise InvalidRequest(
            f"seconds must have one entry for each of {len(graph.calls)} calls, got {len(seconds)}"
        )
    position_of = positions_of_calls(graph)
    if not position_of:
        raise InvalidRequest("a pipeline requires a graph with a forward pass")
    count = position_of[-1] + 1
    forward, backward = np.zeros(count), np.zeros(count)
    np.add.at(forward, position_of, np.asarray(seconds, dtype=np.float64)[: len(position_of)])
    for index, position in _backward_positions(graph, position_of).items():
        backward[position] += seconds[index]
    parameters, tied = _parameters(graph, position_of, count)
    share = parameters / parameters.sum() if parameters.any() else np.full(count, 1 / count)
    updating = (seconds[i] for i, call in enumerate(graph.calls) if call.phase is Phase.OPTIMIZER)
    return Chain(
        forward_seconds=forward,
        backward_seconds=backward,
        parameter_bytes=parameters,
        saved_bytes=_sum_saved(graph, position_of, count),
        crossing_bytes=_crossing(graph, position_of, count),
        optimizer_seconds=share * sum(updating),
        names=_names(graph, position_of, count),
        tied=tied,
    )


def block_starts(chain: Chain) -> tuple[int, ...]:
    """The first position of each block (`layers.3`), and of the parts before, between and after blocks."""
    blocks = [unit_of(f"{name}.") for name in chain.names]
    return tuple(i for i, block in enumerate(blocks) if i == 0 or block != blocks[i - 1])


def numbered_blocks(chain: Chain) -> tuple[int, ...]:
    """The first position of each numbered block, of all lists of blocks."""
    first: dict[str, int] = {}
    for place, name in enumerate(chain.names):
        unit = unit_of(f"{name}.")
        if unit:
            first.setdefault(unit, place)
    return tuple(first.values())


def equal_blocks(units: Sequence[str], parameter_bytes: Floats) -> tuple[int, ...]:
    """Where each block of a model of equal blocks starts; empty if its blocks are not equal.

    `units` are the blocks and other parts in order (`unit_of`). Equal blocks are of one list, such as
    `layers.0` ... `layers.31`, and most have parameters of one size: a mixture of experts may begin with
    dense blocks, but the stages of a convolutional network differ.
    """
    first: dict[str, int] = {}
    for place, unit in enumerate(units):
        if unit.rpartition(".")[2].isdigit():
            first.setdefault(unit, place)
    starts = tuple(first.values())
    sizes = Counter(round(float(parameter_bytes[start])) for start in starts)
    lists = {unit.rpartition(".")[0] for unit in first}
    return starts if len(lists) == 1 and 2 * max(sizes.values()) >= len(starts) else ()


def even_bounds(blocks: Sequence[int], end: int, parts: int) -> tuple[int, ...] | None:
    """As many blocks for every part; None if their number is not a multiple.

    What comes before the first block is on the first part, what follows the last block on the last.
    """
    each, left = divmod(len(blocks), parts)
    return None if left or not each else (0, *(blocks[each * part] for part in range(1, parts)), end)


def given_bounds(blocks: Sequence[int], end: int, layers: Sequence[int]) -> tuple[int, ...]:
    """The given number of blocks for each part."""
    if sum(layers) != len(blocks):
        counts = "+".join(map(str, layers))
        raise InvalidRequest(
            f"layers={counts} are {sum(layers)} layers, but the model has {len(blocks)}; give numbers that "
            f"sum to {len(blocks)}"
        )
    ends = list(accumulate(layers))
    return (0, *(blocks[first] for first in ends[:-1]), end)


def merge_positions(chain: Chain, starts: Sequence[int]) -> Chain:
    """The chain with all positions from one start to the next merged, so that it is cut at starts only."""

    def total(values: Floats) -> Floats:
        return np.add.reduceat(np.asarray(values, dtype=np.float64), starts)

    return replace(
        chain,
        forward_seconds=total(chain.forward_seconds),
        backward_seconds=total(chain.backward_seconds),
        parameter_bytes=total(chain.parameter_bytes),
        saved_bytes=total(chain.saved_bytes),
        crossing_bytes=np.asarray(chain.crossing_bytes)[np.asarray(starts[1:], dtype=np.int64) - 1],
        optimizer_seconds=None if chain.optimizer_seconds is None else total(chain.optimizer_seconds),
        names=tuple(chain.names[start] for start in starts),
    )


def positions_of_calls(graph: Graph) -> list[int]:
    """The position of each forward call; views and weight casts belong to the next call that computes."""
    positions: list[int] = []
    position = 0
    computes = False
    for call in graph.calls:
        if call.phase is not Phase.FORWARD:
            break
        positions.append(position)
        computes = not _is_preparation(graph, call)
        position += computes
    if positions and not computes and position:
        last = position - 1
        positions = [min(one, last) for one in positions]
    return positions


def _is_preparation(graph: Graph, call: Call) -> bool:
    """Whether a call is a view or casts weights."""
    if call.nature is Nature.VIEW:
        return True
    return bool(call.writes) and all(graph.buffers[buffer].role is Role.CAST_WEIGHT for buffer in call.writes)


def _backward_positions(graph: Graph, position_of: Sequence[int]) -> dict[int, int]:
    """The position of each backward call; calls without a forward call belong to the one before."""
    repeats = _Repeats(graph, position_of)
    positions: dict[int, int] = {}
    position = position_of[-1]
    for index, call in enumerate(graph.calls):
        if call.phase is not Phase.BACKWARD:
            continue
        if call.recomputed:
            position = repeats.position(call, position)
        elif call.forward is not None and call.forward < len(position_of):
            position = position_of[call.forward]
        positions[index] = position
    return positions


class _Repeats:
    """Matches recomputed calls to forward calls: the n-th call of a name in a module repeats the n-th."""

    def __init__(self, graph: Graph, position_of: Sequence[int]) -> None:
        self._forward: dict[tuple[str, str], list[int]] = {}
        self._seen: Counter[tuple[str, str]] = Counter()
        for call, position in zip(graph.calls, position_of, strict=False):
            self._forward.setdefault((call.module, call.name), []).append(position)

    def position(self, call: Call, otherwise: int) -> int:
        key = (call.module, call.name)
        known = self._forward.get(key)
        if known is None:
            return otherwise
        turn = self._seen[key]
        self._seen[key] += 1
        return known[turn % len(known)]


def _parameters(
    graph: Graph, position_of: Sequence[int], count: int
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Bytes of parameters by position, and the names of parameters that several modules read."""
    readers: dict[int, dict[str, int]] = {}
    for call, position in zip(graph.calls, position_of, strict=False):
        if call.nature is Nature.VIEW:
            continue
        for buffer in call.reads:
            if graph.buffers[buffer].role is Role.PARAMETER:
                readers.setdefault(buffer, {}).setdefault(call.module, position)
    held = np.zeros(count)
    for buffer, modules in readers.items():
        for position in set(modules.values()):
            held[position] += graph.buffer_bytes(buffer)
    tied = (buffer for buffer, modules in readers.items() if len(set(modules.values())) > 1)
    return held, tuple(graph.buffers[buffer].name for buffer in tied)


def _sum_saved(graph: Graph, position_of: Sequence[int], count: int) -> NDArray[np.float64]:
    """Bytes of the activations that backward calls read, by the position that computed them."""
    read_again = {buffer for call in graph.calls if call.phase is Phase.BACKWARD for buffer in call.reads}
    held = np.zeros(count)
    for index in read_again:
        buffer = graph.buffers[index]
        if buffer.role not in _NOT_SENT and 0 <= buffer.born < len(position_of):
            held[position_of[buffer.born]] += graph.buffer_bytes(index)
    return held


def _crossing(graph: Graph, position_of: Sequence[int], count: int) -> NDArray[np.float64]:
    """Bytes over the cut after each position: buffers computed before and last read after it."""
    last_read: dict[int, int] = {}
    for call, position in zip(graph.calls, position_of, strict=False):
        last_read.update(dict.fromkeys(call.reads, position))
    change = np.zeros(count)
    for index, last in last_read.items():
        buffer = graph.buffers[index]
        if buffer.role not in _NOT_SENT and buffer.born >= 0:
            change[position_of[buffer.born]] += graph.buffer_bytes(index)
            change[last] -= graph.buffer_bytes(index)
    return np.cumsum(change)[:-1]


def _names(graph: Graph, position_of: Sequence[int], count: int) -> tuple[str, ...]:
    """The module of the computing call of each position."""
    names = [""] * count
    for call, position in zip(graph.calls, position_of, strict=False):
        names[position] = call.module
    return tuple(names)


def position_of_every_call(graph: Graph) -> NDArray[np.int64]:
    """The position of each call; -1 for those of the optimizer, which are divided over all positions."""
    forward = positions_of_calls(graph)
    positions = np.full(len(graph.calls), -1, dtype=np.int64)
    positions[: len(forward)] = forward
    for index, position in _backward_positions(graph, forward).items():
        positions[index] = position
    return positions
