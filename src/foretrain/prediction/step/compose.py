"""Composition of a step: the calls and exchanges of one device on its streams, for all micro-batches.

Calls between two points at which an exchange starts or is waited for form one task. Exchanges along one axis
share a stream; exchanges after the same call run in the order they are listed.

A host that does not wait for the device runs ahead, so launches delay a step only if they take longer than
all work of the device:

    step = max(timeline of device and exchanges of every micro-batch, Σ launches) + remaining exchanges

In that case the waits of the device are distributed over its calls in proportion to their launch times. The
stages of a pipeline wait for each other, so each pass of a stage takes at least its own launches. So does
each pass of a framework that copies every micro-batch to the device and waits for it: the host starts every
forward pass with an idle device.

Collectives run on multiprocessors, too. Where products divide their tiles between all multiprocessors
beforehand (`Contention`), the blocks that a collective keeps out start when it ends: the overlap of the two
gains nothing, or half if the collective is much longer than a product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.frameworks import frameworks
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.operators.listing import Floats
from foretrain.prediction.strategies.program import (
    Exchange,
    Program,
    When,
    forward_end,
    optimizer_start,
    unit_of,
)
from foretrain.prediction.timeline import COMPUTE, Stream, Task, Timeline, simulate
from foretrain.workloads.graph import Graph, Phase

ExchangeSeconds = Callable[[Exchange], float]

_SIMULATED = 3
"""Micro-batches that are simulated: the first, one for all between, and the last."""

_MAX_ITERATIONS = 24
_RELATIVE_TOLERANCE = 1e-9
_EVERY = frozenset({When.EVERY})


@dataclass(frozen=True, eq=False)
class ComposedStep:
    """A step of the busiest device.

    `seconds` is the sum of computing, waiting for exchanges (exposed), for other stages (bubble) and for
    launches; `phases` is computing and waiting for launches by phase, for all micro-batches. `stages` are the
    programs of the pipeline's stages, `in_flight` the micro-batches each keeps activations of. All times are
    those of stage `busiest`, which runs `calls` of the whole graph and updates `update_share` of the
    parameters. `timeline` may show only a few of many micro-batches.
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
        """The first and last block of each stage; empty for a single stage."""
        return tuple(_span(stage.graph) for stage in self.stages) if len(self.stages) > 1 else ()

    def scale(self, factor: float) -> ComposedStep:
        """The step with all times but those of the timeline multiplied by a factor."""
        return replace(
            self,
            seconds=self.seconds * factor,
            phases={phase: seconds * factor for phase, seconds in self.phases.items()},
            computing_seconds=self.computing_seconds * factor,
            exposed_seconds=self.exposed_seconds * factor,
            bubble_seconds=self.bubble_seconds * factor,
            waiting_seconds=self.waiting_seconds * factor,
        )


def _span(graph: Graph) -> str:
    units = [unit_of(f"{call.module}.") for call in graph.calls if call.phase is Phase.FORWARD]
    named = [unit for unit in dict.fromkeys(units) if unit]
    if not named:
        return "no block"
    return named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}"


@dataclass(frozen=True, slots=True)
class Contention:
    """Products whose blocks wait for the multiprocessors that a collective holds.

    A product of g seconds that starts during a collective of c seconds more ends min(c, g) later: its last
    blocks start when the collective, or the first blocks, have ended. Over a collective that is longer than
    two products each of them takes twice its time, so

        lost = c · share of products · max(min(1, g / c), 1/2)

    `product_share`: share of computing time in such products; `product_seconds`: the mean time of one.

    Reference: NVIDIA, CUTLASS documentation, "Blackwell cluster launch control" (static schedulers).
    """

    product_share: float
    product_seconds: float

    def lost(self, hidden_seconds: float, mean_seconds: float) -> float:
        """Seconds lost of the overlap of collectives that take `mean_seconds` each."""
        if hidden_seconds <= 0 or mean_seconds <= 0:
            return 0.0
        kept_out = max(min(1.0, self.product_seconds / mean_seconds), 0.5)
        return hidden_seconds * self.product_share * kept_out


NO_CONTENTION = Contention(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of one micro-batch on one stage of a pipeline, including the exchanges it waits for.

    `tail` is the time of exchanges after the last micro-batch, `optimizer` that of the update. Both passes
    include `waiting` for launches; the optimizer includes `update_waiting`.
    """

    forward: float
    backward: float
    tail: float
    optimizer: float
    waiting: float = 0.0
    update_waiting: float = 0.0


def compose(
    program: Program,
    times: CallTimes,
    exchange_seconds: ExchangeSeconds,
    contention: Contention = NO_CONTENTION,
) -> ComposedStep:
    """The step of a program without pipeline stages."""
    segments = _Segments(program, times, exchange_seconds)
    run, seconds = segments.step(program.micro_batches)
    launching = _launched_seconds(program, times, exchange_seconds)
    computing = per_step(times.device, program)
    _, repeated = segments.step(program.micro_batches, exchanges=_EVERY)
    waiting = max(0.0, launching - repeated)
    if waiting > 0:
        waits = segments.waits_per_launch(program.micro_batches, launching)
        run, seconds = segments.step(program.micro_batches, waits)
        waiting = min(waiting, max(0.0, launching - computing))
    exposed = max(0.0, seconds - computing - waiting)
    if waiting > 0:  # what the solver left over is waiting for launches, not for exchanges
        exposed = min(exposed, all_exchange_seconds(program, exchange_seconds))
        waiting = max(0.0, seconds - computing - exposed)
    whole = all_exchange_seconds(program, exchange_seconds)
    lost = _lost_seconds(program, exchange_seconds, whole - exposed, contention)
    absorbed = min(lost, waiting)  # a device that waits for launches has time to spare
    seconds, exposed, waiting = seconds + lost - absorbed, exposed + lost, waiting - absorbed
    prepared = min(exposed, _host_seconds(program))
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


def _launched_seconds(program: Program, times: CallTimes, exchange_seconds: ExchangeSeconds) -> float:
    """The shortest step that the host allows."""
    launching = per_step(times.host, program)
    if not frameworks()[program.graph.options.framework].waits_for_batches:
        return launching
    each = passes(program, times, exchange_seconds)
    return max(launching, program.micro_batches * (each.forward + each.backward) + each.optimizer)


def passes(
    program: Program,
    times: CallTimes,
    exchange_seconds: ExchangeSeconds,
    contention: Contention = NO_CONTENTION,
) -> Passes:
    """The passes of one micro-batch through a stage."""
    segments = _Segments(program, times, exchange_seconds)
    middle, last = segments.timeline(1, exchanges=_EVERY), segments.timeline(1)
    forward = _end(middle, Phase.FORWARD)
    body = max(forward, _end(middle, Phase.BACKWARD), _busiest_lane(middle))
    start, updating = forward_end(program.graph), optimizer_start(program.graph)
    optimizer = float(times.device[updating:].sum())
    tail = max(0.0, last.seconds - body - optimizer)
    every = tuple(each for each in program.exchanges if each.when is When.EVERY)
    repeated = replace(program, exchanges=every, micro_batches=1)
    whole = all_exchange_seconds(repeated, exchange_seconds)
    hidden = whole - (body - float(times.device[:updating].sum()))
    body += _lost_seconds(repeated, exchange_seconds, hidden, contention)
    launched = float(times.host[:start].sum()), float(times.host[start:updating].sum())
    paced = max(forward, launched[0]), max(body - forward, launched[1])
    updated = max(optimizer, float(times.host[updating:].sum()))
    return Passes(
        forward=paced[0],
        backward=paced[1],
        tail=tail,
        optimizer=updated,
        waiting=sum(paced) - body,
        update_waiting=updated - optimizer,
    )


def _end(run: Timeline, phase: Phase) -> float:
    ends = [end for task, end in zip(run.tasks, run.ends, strict=True) if task.kind == phase]
    return float(max(ends, default=0.0))


def _busiest_lane(run: Timeline) -> float:
    """Time of the busiest stream of exchanges: the shortest interval between micro-batches."""
    lanes = [stream for stream in run.streams if stream.lane != COMPUTE]
    return max((run.busy_seconds(lane) for lane in lanes), default=0.0)


def all_exchange_seconds(program: Program, exchange_seconds: ExchangeSeconds) -> float:
    """Total time of all exchanges of a step, exposed or not."""
    return sum(exchange_seconds(each) * exchange_count(each, program) for each in program.exchanges)


def _lost_seconds(
    program: Program, exchange_seconds: ExchangeSeconds, hidden: float, contention: Contention
) -> float:
    """What `hidden` seconds of exchanges cost the products beside them.

    Exchanges by copy engines cost nothing; they are taken to be as well hidden as the others.
    """
    if not contention.product_share:
        return 0.0
    holding = replace(program, exchanges=tuple(each for each in program.exchanges if not each.by_copies))
    count = sum(exchange_count(each, holding) for each in holding.exchanges)
    whole, held = (all_exchange_seconds(each, exchange_seconds) for each in (program, holding))
    return contention.lost(hidden * held / whole, held / count) if held else 0.0


def _host_seconds(program: Program) -> float:
    """Host time of all exchanges of a step; devices wait for it as for launches."""
    return sum(each.host_seconds * exchange_count(each, program) for each in program.exchanges)


def exchange_count(exchange: Exchange, program: Program) -> int:
    """How often an exchange takes place in a step."""
    return program.micro_batches if exchange.when is When.EVERY else 1


def per_step(seconds: Floats, program: Program) -> float:
    """Total time of calls over all micro-batches of a step."""
    start = optimizer_start(program.graph)
    return float(seconds[:start].sum()) * program.micro_batches + float(seconds[start:].sum())


def phase_seconds(times: CallTimes, program: Program) -> tuple[Floats, Floats]:
    """Device and host seconds of a step by `Phase`, for all micro-batches."""
    start, updating = forward_end(program.graph), optimizer_start(program.graph)
    spans: tuple[Any, ...] = (slice(0, start), slice(start, updating), slice(updating, None))
    if program.graph.is_whole_step:  # phases alternate
        phases = [call.phase for call in program.graph.calls]
        spans = tuple(np.array([each is phase for each in phases], bool) for phase in Phase)
    rounds = (program.micro_batches, program.micro_batches, 1)
    device, host = (
        np.array([each[span].sum() * often for span, often in zip(spans, rounds, strict=True)], float)
        for each in (times.device, times.host)
    )
    return device, host


def with_waits(device: Floats, host: Floats, waiting: float) -> dict[Phase, float]:
    """Seconds by phase, the waits for launches distributed in proportion to the launch times."""
    weights = host if host.sum() else device
    waits = waiting * weights / weights.sum() if weights.sum() else np.array([0.0, 0.0, waiting])
    return dict(zip(Phase, (device + waits).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class _Segments:
    """A program as segments of calls between the points where exchanges start or are waited for."""

    program: Program
    times: CallTimes
    exchange_seconds: ExchangeSeconds

    @cached_property
    def _started_after(self) -> dict[int, list[Exchange]]:
        """Exchanges by the call they start after."""
        started: dict[int, list[Exchange]] = defaultdict(list)
        for exchange in self.program.exchanges:
            started[exchange.after].append(exchange)
        return started

    @cached_property
    def _bounds(self) -> list[int]:
        graph = self.program.graph
        count, start = len(graph.calls), optimizer_start(graph)
        forward = next((i for i, call in enumerate(graph.calls) if call.phase is Phase.BACKWARD), start)
        bounds = {0, count, start, forward}
        for exchange in self.program.exchanges:
            bounds |= {exchange.after + 1, min(exchange.before, count)}
        return sorted(bounds)

    @cached_property
    def _names(self) -> list[str]:
        calls = self.program.graph.calls
        return [_name(calls[first].phase, calls[first].module) for first in self._bounds[:-1]]

    def timeline(
        self, micro_batches: int, waits_per_launch: float = 0.0, exchanges: frozenset[When] | None = None
    ) -> Timeline:
        """The timeline of `micro_batches`; the device waits `waits_per_launch` per second of launches.

        `exchanges` selects the exchanges; None: those of the first, the last or every micro-batch.
        """
        bounds, calls = self._bounds, self.program.graph.calls
        seconds = self.times.device + waits_per_launch * self.times.host
        lengths = np.diff(np.append(0.0, np.cumsum(seconds))[bounds]).tolist()
        body = bounds.index(optimizer_start(self.program.graph))
        tasks: list[Task] = []
        awaited: dict[int, list[int]] = defaultdict(list)  # exchanges by the call that waits for them
        computed: tuple[int, ...] = ()
        for number in range(micro_batches):
            is_last = number == micro_batches - 1
            when = exchanges or _occasions(number == 0, is_last)
            self._start_exchanges(-1, when, computed, tasks, awaited)
            for segment in range(len(lengths) if is_last else body):
                first, phase = bounds[segment], calls[bounds[segment]].phase
                after = tuple(awaited.pop(first, ()))
                computed = (len(tasks),)
                tasks.append(
                    Task(self._names[segment], Stream(0, COMPUTE), lengths[segment], after, kind=phase)
                )
                self._start_exchanges(bounds[segment + 1] - 1, when, computed, tasks, awaited)
        return simulate(tasks)

    def _start_exchanges(
        self,
        call: int,
        when: frozenset[When],
        after: tuple[int, ...],
        tasks: list[Task],
        awaited: dict[int, list[int]],
    ) -> None:
        """Append the exchanges that start after a call, each after the one before it."""
        for exchange in self._started_after.get(call, ()):
            if exchange.when not in when:
                continue
            number, lane = len(tasks), f"{exchange.axes[-1]} exchange"
            seconds = self.exchange_seconds(exchange)
            tasks.append(Task(exchange.name, Stream(0, lane), seconds, after, kind=exchange.verb))
            awaited[exchange.before].append(number)
            after = (number,)

    def step(
        self, micro_batches: int, waits_per_launch: float = 0.0, exchanges: frozenset[When] | None = None
    ) -> tuple[Timeline, float]:
        """The timeline of a few micro-batches, and the seconds of all."""
        simulated = min(micro_batches, _SIMULATED)
        run = self.timeline(simulated, waits_per_launch, exchanges)
        seconds = run.seconds
        if micro_batches > simulated:
            shorter = self.timeline(simulated - 1, waits_per_launch, exchanges)
            seconds += (micro_batches - simulated) * (run.seconds - shorter.seconds)
        return run, seconds

    def waits_per_launch(self, micro_batches: int, launching: float) -> float:
        """Seconds the device waits per second of launches, such that the step takes as long as its launches.

        Solved by regula falsi with the Illinois modification. At 1 the launches alone fill the step.
        """
        low, high = 0.0, 1.0
        short, over = (self._excess(micro_batches, waits, launching) for waits in (low, high))
        side = 0
        for _ in range(_MAX_ITERATIONS):
            if over <= _RELATIVE_TOLERANCE * launching or short >= 0:
                break
            middle = low + (high - low) * short / (short - over)
            excess = self._excess(micro_batches, middle, launching)
            if abs(excess) <= _RELATIVE_TOLERANCE * launching:
                return middle
            if excess < 0:  # halve the weight of an end that does not move
                low, short, over, side = middle, excess, over / 2 if side < 0 else over, -1
            else:
                high, over, short, side = middle, excess, short / 2 if side > 0 else short, 1
        return high

    def _excess(self, micro_batches: int, waits: float, launching: float) -> float:
        """Seconds by which a step with these waits exceeds its launches."""
        return self.step(micro_batches, waits, _EVERY)[1] - launching


def _occasions(is_first: bool, is_last: bool) -> frozenset[When]:
    """The exchanges of a micro-batch, by whether it is the first and the last."""
    return frozenset(
        {When.EVERY} | ({When.FIRST} if is_first else set()) | ({When.LAST} if is_last else set())
    )


def _name(phase: Phase, module: str) -> str:
    unit = unit_of(module + ".") or module.split(".")[0]
    return f"{phase} {unit}".strip()
