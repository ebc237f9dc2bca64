"""A device's program on its streams: calls in order, exchanges beside them, micro-batch after micro-batch.

Between two places where an exchange starts or is waited for, calls simply follow each other, so they become
one task. Exchanges along one axis share a stream; those after the same call run in the order they are listed.

A host that does not wait for the device runs ahead, so launches hold up a step only if they take longer than
all that the device does in its micro-batches:

    step = max(timeline of device and exchanges of every micro-batch, Σ launches) + exchanges left over

Where they do, the device's waits are spread over its calls as the launches are. The stages of a pipeline wait
for each other, so there each pass takes at least its own launches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretrain.prediction.cost_models.priced_step import CallTimes
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.strategies.gradients import forward_end, optimizer_start
from foretrain.prediction.strategies.program import Exchange, Program, When, unit_of
from foretrain.prediction.timeline import COMPUTE, Stream, Task, Timeline, simulate
from foretrain.workloads.graph import Graph, Phase

ExchangeSeconds = Callable[[Exchange], float]

_SIMULATED = 3
"""Micro-batches that are walked through: the first, one like all in between, and the last."""

_MOST_GUESSES = 24
_EXACT = 1e-9
_EVERY = frozenset({When.EVERY})


@dataclass(frozen=True, eq=False)
class ComposedStep:
    """A step of the busiest device.

    `phases` are computing and waiting for launches in each phase, all micro-batches together. The
    step is the time spent computing, waiting for exchanges (exposed), for other stages (bubble) and for
    launches. `stages` are the programs of each stage of the pipeline, `in_flight` the micro-batches each
    keeps activations of; `busiest` is the stage told of, `calls` the calls it runs of the whole graph, and
    `update_share` its share of the parameters. `timeline` may show only a few of many micro-batches.
    """

    seconds: float
    timeline: Timeline
    phases: dict[Phase, float]
    computing_seconds: float
    exposed_seconds: float
    bubble_seconds: float
    waiting_seconds: float
    stages: tuple[Program, ...]
    in_flight: tuple[float, ...] = (1.0,)
    busiest: int = 0
    calls: NDArray[np.int64] | None = None
    update_share: float = 1.0

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The blocks of each stage, first to last; nothing to tell of a single one."""
        return tuple(_span(stage.graph) for stage in self.stages) if len(self.stages) > 1 else ()


def _span(graph: Graph) -> str:
    units = [unit_of(f"{call.module}.") for call in graph.calls if call.phase is Phase.FORWARD]
    named = [unit for unit in dict.fromkeys(units) if unit]
    if not named:
        return "no block"
    return named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}"


@dataclass(frozen=True, slots=True)
class Passes:
    """What one micro-batch takes on one stage of a pipeline, exchanges that it waits for included.

    `tail` is how long the exchanges of the last micro-batch go on after it, `optimizer` what comes after;
    `waiting` is what both passes together wait for launches, `update_waiting` what the optimizer does: parts
    of their times.
    """

    forward: float
    backward: float
    tail: float
    optimizer: float
    waiting: float = 0.0
    update_waiting: float = 0.0


def compose(program: Program, times: CallTimes, exchange_seconds: ExchangeSeconds) -> ComposedStep:
    """The step of a program that is not cut into stages."""
    score = _Score(program, times, exchange_seconds)
    run, seconds = score.whole(program.micro_batches)
    launching = per_step(times.host, program)
    computing = per_step(times.device, program)
    _, bare = score.whole(program.micro_batches, happening=_EVERY)
    waiting = max(0.0, launching - bare)
    if waiting > 0:
        waits = score.waits_per_launch(program.micro_batches, launching)
        run, seconds = score.whole(program.micro_batches, waits)
        waiting = min(waiting, max(0.0, launching - computing))
    exposed = max(0.0, seconds - computing - waiting)
    if waiting > 0:  # what the waits were rounded up by is waited for launches
        exposed = min(exposed, exchanging_seconds(program, exchange_seconds))
        waiting = max(0.0, seconds - computing - exposed)
    prepared = min(exposed, _preparing_seconds(program))
    return ComposedStep(
        seconds=seconds,
        timeline=run,
        phases=with_waits(*phase_seconds(times, program), waiting + prepared),
        computing_seconds=computing,
        exposed_seconds=exposed - prepared,
        bubble_seconds=0.0,
        waiting_seconds=waiting + prepared,
        stages=(program,),
    )


def passes(program: Program, times: CallTimes, exchange_seconds: ExchangeSeconds) -> Passes:
    """What the passes of one micro-batch through a stage take."""
    score = _Score(program, times, exchange_seconds)
    middle, last = score.play(1, happening=_EVERY), score.play(1)
    forward = _end(middle, Phase.FORWARD)
    body = max(forward, _end(middle, Phase.BACKWARD), _busiest_lane(middle))
    start, updating = forward_end(program.graph), optimizer_start(program.graph)
    optimizer = float(times.device[updating:].sum())
    launched = float(times.host[:start].sum()), float(times.host[start:updating].sum())
    paced = max(forward, launched[0]), max(body - forward, launched[1])
    updated = max(optimizer, float(times.host[updating:].sum()))
    return Passes(
        forward=paced[0],
        backward=paced[1],
        tail=max(0.0, last.seconds - body - optimizer),
        optimizer=updated,
        waiting=sum(paced) - body,
        update_waiting=updated - optimizer,
    )


def _end(run: Timeline, phase: Phase) -> float:
    ends = [end for task, end in zip(run.tasks, run.ends, strict=True) if task.kind == phase]
    return float(max(ends, default=0.0))


def _busiest_lane(run: Timeline) -> float:
    """A micro-batch cannot follow the one before more quickly than its exchanges follow each other."""
    lanes = [stream for stream in run.streams if stream.lane != COMPUTE]
    return max((run.busy_seconds(lane) for lane in lanes), default=0.0)


def exchanging_seconds(program: Program, exchange_seconds: ExchangeSeconds) -> float:
    """What all exchanges of a step take, waited for or not."""
    return sum(exchange_seconds(each) * times_happening(each, program) for each in program.exchanges)


def _preparing_seconds(program: Program) -> float:
    """What the host does for exchanges in a step: devices wait for it as for launches."""
    return sum(each.host_seconds * times_happening(each, program) for each in program.exchanges)


def times_happening(exchange: Exchange, program: Program) -> int:
    """How often an exchange happens in a step."""
    return program.micro_batches if exchange.when is When.EVERY else 1


def per_step(seconds: Floats, program: Program) -> float:
    """What calls take in all micro-batches of a step together."""
    start = optimizer_start(program.graph)
    return float(seconds[:start].sum()) * program.micro_batches + float(seconds[start:].sum())


def phase_seconds(times: CallTimes, program: Program) -> tuple[Floats, Floats]:
    """What the device and the host spend on each phase in all micro-batches of a step, by `Phase`."""
    start, updating = forward_end(program.graph), optimizer_start(program.graph)
    spans = (slice(0, start), slice(start, updating), slice(updating, None))
    rounds = (program.micro_batches, program.micro_batches, 1)
    device, host = (
        np.array([each[span].sum() * often for span, often in zip(spans, rounds, strict=True)], float)
        for each in (times.device, times.host)
    )
    return device, host


def with_waits(device: Floats, host: Floats, waiting: float) -> dict[Phase, float]:
    """Phases with what the device waits for launches, shared out as the launches are."""
    weights = host if host.sum() else device
    waits = waiting * weights / weights.sum() if weights.sum() else np.array([0.0, 0.0, waiting])
    return dict(zip(Phase, (device + waits).tolist(), strict=True))


class _Score:
    """A program as segments between the places where exchanges start or are waited for."""

    def __init__(self, program: Program, times: CallTimes, exchange_seconds: ExchangeSeconds) -> None:
        self._program = program
        self._times = times
        self._cost = exchange_seconds
        self._after: dict[int, list[Exchange]] = defaultdict(list)
        for exchange in program.exchanges:
            self._after[exchange.after].append(exchange)

    @cached_property
    def _bounds(self) -> list[int]:
        graph = self._program.graph
        count, start = len(graph.calls), optimizer_start(graph)
        forward = next((i for i, call in enumerate(graph.calls) if call.phase is Phase.BACKWARD), start)
        bounds = {0, count, start, forward}
        for exchange in self._program.exchanges:
            bounds |= {exchange.after + 1, min(exchange.before, count)}
        return sorted(bounds)

    @cached_property
    def _names(self) -> list[str]:
        calls = self._program.graph.calls
        return [_name(calls[first].phase, calls[first].module) for first in self._bounds[:-1]]

    def play(
        self, micro_batches: int, waits_per_launch: float = 0.0, happening: frozenset[When] | None = None
    ) -> Timeline:
        """The timeline of so many micro-batches, the device waiting so long for every second of launches.

        `happening` are the exchanges to play; None: those of the first, the last or any micro-batch.
        """
        program, bounds = self._program, self._bounds
        seconds = self._times.device + waits_per_launch * self._times.host
        spent = np.append(0.0, np.cumsum(seconds))[bounds]
        lengths = np.diff(spent).tolist()
        body = bounds.index(optimizer_start(program.graph))
        player = _Player(self._cost)
        for number in range(micro_batches):
            is_last = number == micro_batches - 1
            now = happening or _happening(number == 0, is_last)
            player.exchange(self._exchanges(-1, now))
            segments = range(len(lengths)) if is_last else range(body)
            for segment in segments:
                phase = program.graph.calls[bounds[segment]].phase
                player.compute(self._names[segment], lengths[segment], phase, waits_at=bounds[segment])
                player.exchange(self._exchanges(bounds[segment + 1] - 1, now))
        return simulate(player.tasks)

    def whole(
        self, micro_batches: int, waits_per_launch: float = 0.0, happening: frozenset[When] | None = None
    ) -> tuple[Timeline, float]:
        """The timeline of a few micro-batches, and the seconds of all of them."""
        walked = min(micro_batches, _SIMULATED)
        run = self.play(walked, waits_per_launch, happening)
        seconds = run.seconds
        if micro_batches > walked:
            shorter = self.play(walked - 1, waits_per_launch, happening)
            seconds += (micro_batches - walked) * (run.seconds - shorter.seconds)
        return run, seconds

    def waits_per_launch(self, micro_batches: int, launching: float) -> float:
        """How long the device waits for every second of launches, so that it keeps pace with them."""
        low, high = 0.0, 1.0  # a wait as long as every launch is enough: then launches alone fill the step
        short, over = (self._ahead(micro_batches, waits, launching) for waits in (low, high))
        side = 0
        for _ in range(_MOST_GUESSES):
            if over <= _EXACT * launching or short >= 0:
                break
            middle = low + (high - low) * short / (short - over)
            found = self._ahead(micro_batches, middle, launching)
            if abs(found) <= _EXACT * launching:
                return middle
            if found < 0:  # an end that stays is given less weight (the Illinois algorithm)
                low, short, over, side = middle, found, over / 2 if side < 0 else over, -1
            else:
                high, over, short, side = middle, found, short / 2 if side > 0 else short, 1
        return high

    def _ahead(self, micro_batches: int, waits: float, launching: float) -> float:
        """By how much a step outlasts its launches, if the device waits so long for every second of them."""
        return self.whole(micro_batches, waits, _EVERY)[1] - launching

    def _exchanges(self, after: int, happening: frozenset[When]) -> Sequence[Exchange]:
        return [exchange for exchange in self._after.get(after, ()) if exchange.when in happening]


def _happening(is_first: bool, is_last: bool) -> frozenset[When]:
    return frozenset(
        {When.EVERY} | ({When.FIRST} if is_first else set()) | ({When.LAST} if is_last else set())
    )


def _name(phase: Phase, module: str) -> str:
    unit = unit_of(module + ".") or module.split(".")[0]
    return f"{phase} {unit}".strip()


class _Player:
    """Lists tasks as the program goes on."""

    def __init__(self, cost: ExchangeSeconds) -> None:
        self.tasks: list[Task] = []
        self._cost = cost
        self._waited_for: dict[int, list[int]] = defaultdict(list)
        self._computed: tuple[int, ...] = ()

    def compute(self, name: str, seconds: float, phase: Phase, waits_at: int) -> None:
        """Calls in a row, once the exchanges that the first of them waits for have ended."""
        after = tuple(self._waited_for.pop(waits_at, ()))
        self._computed = (len(self.tasks),)
        self.tasks.append(Task(name, Stream(0, COMPUTE), seconds, after, kind=phase))

    def exchange(self, exchanges: Sequence[Exchange]) -> None:
        """Exchanges that start now, one after the other."""
        after = self._computed
        for exchange in exchanges:
            number = len(self.tasks)
            lane = f"{exchange.axes[-1]} exchange"
            seconds = self._cost(exchange)
            self.tasks.append(Task(exchange.name, Stream(0, lane), seconds, after, kind=exchange.verb))
            self._waited_for[exchange.before].append(number)
            after = (number,)
