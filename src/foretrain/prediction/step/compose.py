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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrain.facts.frameworks import frameworks
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.strategies.program import (
    Exchange,
    Program,
    When,
    forward_end,
    optimizer_start,
    unit_of,
)
from foretrain.prediction.timeline import COMPUTE, Stream, Task, TimedOperator, Timeline, play
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
    parameters. `draw` lists the tasks of the timeline.
    """

    seconds: float
    draw: Callable[[], Timeline]
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

    @cached_property
    def timeline(self) -> Timeline:
        """The tasks with their times, perhaps of only a few of many micro-batches."""
        return self.draw()

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
    # First as if the host were infinitely fast: calls and exchanges alone.
    segments = _Segments(program, times, exchange_seconds)
    run, seconds = segments.step(program.micro_batches)
    launching = _launched_seconds(segments)
    computing = per_step(times.device, program)
    # Launches overlap what every micro-batch repeats. Exchanges after the last one come on top of them.
    _, repeated = segments.step(program.micro_batches, exchanges=_EVERY)
    whole = segments.exchanging(program.micro_batches)
    waiting = max(0.0, launching - repeated)
    if waiting > 0:
        waits = segments.waits_per_launch(program.micro_batches, launching)
        run, seconds = segments.step(program.micro_batches, waits)
        waiting = min(waiting, max(0.0, launching - computing))
    exposed = max(0.0, seconds - computing - waiting)
    if waiting > 0:  # what the solver left over is waiting for launches, not for exchanges
        exposed = min(exposed, whole.seconds)
        waiting = max(0.0, seconds - computing - exposed)
    lost = whole.lost(whole.seconds - exposed, contention)
    absorbed = min(lost, waiting)  # a device that waits for launches has time to spare
    seconds, exposed, waiting = seconds + lost - absorbed, exposed + lost, waiting - absorbed
    # What a strategy does on the host before it sends (`Exchange.host_seconds`) counts as launching.
    prepared = min(exposed, whole.host_seconds)
    return ComposedStep(
        seconds=seconds,
        draw=run.timeline,
        phases=with_waits(*phase_seconds(times, program), waiting + prepared),
        computing_seconds=computing,
        exposed_seconds=exposed - prepared,
        bubble_seconds=0.0,
        waiting_seconds=waiting + prepared,
        stages=(program,),
    )


def _launched_seconds(segments: _Segments) -> float:
    """The shortest step that the host allows."""
    program = segments.program
    launching = per_step(segments.times.host, program)
    if not frameworks()[program.graph.options.framework].waits_for_batches:
        return launching
    each = segments.passes(NO_CONTENTION)
    return max(launching, program.micro_batches * (each.forward + each.backward) + each.optimizer)


def passes(
    program: Program,
    times: CallTimes,
    exchange_seconds: ExchangeSeconds,
    contention: Contention = NO_CONTENTION,
) -> Passes:
    """The passes of one micro-batch through a stage."""
    return _Segments(program, times, exchange_seconds).passes(contention)


@dataclass(frozen=True, slots=True)
class _Exchanging:
    """All exchanges of a step: their time, and time and number of those that hold multiprocessors.

    Devices wait for `host_seconds` as for launches.
    """

    seconds: float
    held_seconds: float
    held_count: int
    host_seconds: float

    def lost(self, hidden: float, contention: Contention) -> float:
        """What `hidden` seconds of exchanges cost the products beside them.

        Exchanges by copy engines cost nothing; they are taken to be as well hidden as the others.
        """
        if not contention.product_share or not self.held_seconds:
            return 0.0
        mean = self.held_seconds / self.held_count
        return contention.lost(hidden * self.held_seconds / self.seconds, mean)


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
class _Order:
    """Tasks in the order they are started, without their seconds.

    A task of stream 0 is segment `what` of the calls, another one is exchange `~what`. `after` are the tasks
    that each one waits for.
    """

    streams: list[int]
    what: list[int]
    after: list[tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class _Played:
    """An order of tasks with their times."""

    segments: _Segments
    order: _Order
    call_seconds: Floats
    lengths: list[float]
    starts: list[float]
    ends: list[float]

    @property
    def seconds(self) -> float:
        """End of the last task."""
        return max(self.ends, default=0.0)

    def end_of(self, phase: Phase) -> float:
        """End of the last call of a phase."""
        phases = self.segments.phases
        pairs = zip(self.order.streams, self.order.what, self.ends, strict=True)
        return max((end for stream, what, end in pairs if stream == 0 and phases[what] is phase), default=0.0)

    @property
    def busiest_lane(self) -> float:
        """Time of the busiest stream of exchanges: the shortest interval between micro-batches."""
        lasting = np.array(self.ends) - np.array(self.starts)
        return float(np.bincount(self.order.streams, lasting)[1:].max(initial=0.0))

    def timeline(self) -> Timeline:
        """The tasks by name."""
        segments, tasks = self.segments, []
        exchanges, streams = segments.program.exchanges, [Stream(0, lane) for lane in segments.lanes]
        order = zip(self.order.streams, self.order.what, self.order.after, self.lengths, strict=True)
        for stream, what, after, seconds in order:
            name = segments.names[what] if stream == 0 else exchanges[~what].name
            kind = segments.phases[what] if stream == 0 else exchanges[~what].verb
            tasks.append(Task(name, streams[stream], seconds, after, kind))
        return Timeline(tuple(tasks), np.array(self.starts), np.array(self.ends), self._operators)

    def _operators(self, task: int) -> Sequence[TimedOperator]:
        """The calls of a task; an exchange has none."""
        if self.order.streams[task] != 0:
            return ()
        span = self.segments.span(self.order.what[task])
        return operators_of(self.segments.program.graph, self.call_seconds, span)


def operators_of(graph: Graph, seconds: Floats, span: slice) -> list[TimedOperator]:
    """Calls of a graph with their seconds, as a timeline shows them."""
    pairs = zip(graph.calls[span], seconds[span].tolist(), strict=True)
    return [TimedOperator(call.name, call.module, spent) for call, spent in pairs]


@dataclass(frozen=True, eq=False)
class _Segments:
    """A program as segments of calls between the points where exchanges start or are waited for."""

    program: Program
    times: CallTimes
    exchange_seconds: ExchangeSeconds

    @cached_property
    def _spent(self) -> Floats:
        """Seconds of each exchange."""
        return np.array([self.exchange_seconds(each) for each in self.program.exchanges], float)

    @cached_property
    def lanes(self) -> list[str]:
        """The streams: that of calls first, then those of exchanges."""
        return [COMPUTE, *dict.fromkeys(f"{each.axes[-1]} exchange" for each in self.program.exchanges)]

    @cached_property
    def _started_after(self) -> dict[int, list[tuple[int, int, When, int]]]:
        """Number, stream, occasion and waiting call of exchanges by the call they start after."""
        stream_of = {lane: number for number, lane in enumerate(self.lanes)}
        started: dict[int, list[tuple[int, int, When, int]]] = defaultdict(list)
        for number, each in enumerate(self.program.exchanges):
            stream = stream_of[f"{each.axes[-1]} exchange"]
            started[each.after].append((number, stream, each.when, each.before))
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

    def span(self, segment: int) -> slice:
        """The calls of a segment."""
        return slice(self._bounds[segment], self._bounds[segment + 1])

    @cached_property
    def names(self) -> list[str]:
        """Phase and block of each segment."""
        calls = self.program.graph.calls
        return [_name(calls[first].phase, calls[first].module) for first in self._bounds[:-1]]

    @cached_property
    def phases(self) -> list[Phase]:
        """The phase of each segment."""
        calls = self.program.graph.calls
        return [calls[first].phase for first in self._bounds[:-1]]

    @cached_property
    def _orders(self) -> dict[tuple[int, frozenset[When] | None], _Order]:
        return {}

    def _order(self, micro_batches: int, exchanges: frozenset[When] | None) -> _Order:
        key = micro_batches, exchanges
        if key not in self._orders:
            self._orders[key] = self._list_tasks(micro_batches, exchanges)
        return self._orders[key]

    def _list_tasks(self, micro_batches: int, exchanges: frozenset[When] | None) -> _Order:
        bounds, started = self._bounds, self._started_after
        body = bounds.index(optimizer_start(self.program.graph))
        order = _Order([], [], [])
        awaited: dict[int, list[int]] = defaultdict(list)  # exchanges by the call that waits for them
        computed: tuple[int, ...] = ()
        for number in range(micro_batches):
            is_last = number == micro_batches - 1
            when = exchanges or _occasions(number == 0, is_last)
            self._start_exchanges(-1, when, computed, order, awaited)
            # The optimizer, behind `body`, runs once: after the last micro-batch.
            for segment in range(len(bounds) - 1 if is_last else body):
                computed = (len(order.what),)
                order.streams.append(0)
                order.what.append(segment)
                order.after.append(tuple(awaited.pop(bounds[segment], ())))
                if bounds[segment + 1] - 1 in started:
                    self._start_exchanges(bounds[segment + 1] - 1, when, computed, order, awaited)
        return order

    def _start_exchanges(
        self,
        call: int,
        when: frozenset[When],
        after: tuple[int, ...],
        order: _Order,
        awaited: dict[int, list[int]],
    ) -> None:
        """Append the exchanges that start after a call, each after the one before it."""
        for number, stream, occasion, before in self._started_after.get(call, ()):
            if occasion not in when:
                continue
            awaited[before].append(len(order.what))
            order.streams.append(stream)
            order.what.append(~number)
            order.after.append(after)
            after = (len(order.what) - 1,)

    def play(
        self, micro_batches: int, waits_per_launch: float = 0.0, exchanges: frozenset[When] | None = None
    ) -> _Played:
        """Times of the tasks of `micro_batches`; the device waits `waits_per_launch` per second of launches.

        `exchanges` selects the exchanges; None: those of the first, the last or every micro-batch.
        """
        order = self._order(micro_batches, exchanges)
        seconds = self.times.device + waits_per_launch * self.times.host
        lengths = np.diff(np.append(0.0, np.cumsum(seconds))[self._bounds])
        of_all = np.append(lengths, self._spent[::-1])  # `~number` counts exchanges from the end
        spent = of_all[order.what].tolist()
        return _Played(self, order, seconds, spent, *play(order.streams, spent, order.after))

    def step(
        self, micro_batches: int, waits_per_launch: float = 0.0, exchanges: frozenset[When] | None = None
    ) -> tuple[_Played, float]:
        """The tasks of a few micro-batches, and the seconds of all."""
        simulated = min(micro_batches, _SIMULATED)
        run = self.play(simulated, waits_per_launch, exchanges)
        seconds = run.seconds
        # All micro-batches between the first and the last take the same time: what one more of them adds.
        if micro_batches > simulated:
            shorter = self.play(simulated - 1, waits_per_launch, exchanges)
            seconds += (micro_batches - simulated) * (run.seconds - shorter.seconds)
        return run, seconds

    def passes(self, contention: Contention) -> Passes:
        """The passes of one micro-batch."""
        program, times = self.program, self.times
        middle, last = self.play(1, exchanges=_EVERY), self.play(1)
        forward = middle.end_of(Phase.FORWARD)
        # A pipeline in its steady state is no faster than its busiest stream of exchanges.
        body = max(forward, middle.end_of(Phase.BACKWARD), middle.busiest_lane)
        start, updating = forward_end(program.graph), optimizer_start(program.graph)
        optimizer = float(times.device[updating:].sum())
        tail = max(0.0, last.seconds - body - optimizer)
        repeated = self.exchanging(1, _EVERY)
        hidden = repeated.seconds - (body - float(times.device[:updating].sum()))
        body += repeated.lost(hidden, contention)
        launched = float(times.host[:start].sum()), float(times.host[start:updating].sum())
        # Stages wait for each other, so that no host runs ahead: each pass takes at least its own launches.
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

    def exchanging(self, micro_batches: int, when: frozenset[When] = frozenset(When)) -> _Exchanging:
        """The exchanges of some occasions in a step of `micro_batches`."""
        seconds = held_seconds = host_seconds = 0.0
        held_count = 0
        for each, spent in zip(self.program.exchanges, self._spent.tolist(), strict=True):
            if each.when not in when:
                continue
            count = micro_batches if each.when is When.EVERY else 1
            seconds += spent * count
            host_seconds += each.host_seconds * count
            if not each.by_copies:
                held_seconds += spent * count
                held_count += count
        return _Exchanging(seconds, held_seconds, held_count, host_seconds)

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
