"""What every strategy must hold to: one device changes nothing, no work is lost, exchanges fit the step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.step.compose import compose
from foretrain.prediction.strategies.program import Axis, Exchange, Program
from foretrain.prediction.strategies.strategy import (
    Layout,
    Shards,
    Strategy,
    active_strategies,
    layout_of,
    replication,
    strategies,
    strategy_of,
)
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.rules import operators

_ROUNDING = 1e-9
_MICRO_BATCHES = 3


class StrategySuite(ABC):
    """Inherit it in a test class, with the rewritten program of a degree and the graphs to try it on.

    `divides`: a device has its share of the work, as under tensor parallelism; otherwise it has samples of
    its own and all the work on them. `padding` is how much more than its share it may have, where sizes do
    not divide evenly. `shrinks`: a device holds fewer parameters.
    """

    degrees: ClassVar[Sequence[int]] = (2, 4)
    divides: ClassVar[bool] = False
    padding: ClassVar[float] = 0.0
    shrinks: ClassVar[bool] = False

    @abstractmethod
    def spread(self, program: Program, degree: int) -> Program:
        """The program of one of `degree` devices."""

    @abstractmethod
    def graphs(self) -> Sequence[Graph]:
        """Steps of one device each."""

    def cases(self) -> Iterator[tuple[Program, int, Program]]:
        """Every graph at every degree."""
        for graph in self.graphs():
            whole = Program(graph, micro_batches=_MICRO_BATCHES)
            for degree in self.degrees:
                yield whole, degree, self.spread(whole, degree)

    def test_one_device_changes_nothing(self) -> None:
        """Not even the object."""
        for graph in self.graphs():
            whole = Program(graph, micro_batches=_MICRO_BATCHES)
            assert self.spread(whole, 1) is whole

    def test_degrees_are_counted(self) -> None:
        """All devices are counted, and nothing else about the step changes."""
        for whole, degree, part in self.cases():
            assert part.devices == degree
            assert part.micro_batches == whole.micro_batches
            assert (part.replicas == 1) is self.divides

    def test_work_is_conserved(self) -> None:
        """A device has all the work on samples of its own, or its share of the work on all."""
        for whole, degree, part in self.cases():
            share = 1 / degree if self.divides else 1.0
            ratio = _flop(part.graph) / (share * _flop(whole.graph))
            assert 1 - _ROUNDING <= ratio <= 1 + self.padding + _ROUNDING, f"over {degree}: {ratio} times"

    def test_no_parameter_is_lost(self) -> None:
        """A device holds at most all of them, and all devices together at least all."""
        for whole, degree, part in self.cases():
            held = part.graph.parameters
            assert degree * held >= whole.graph.parameters
            assert held <= whole.graph.parameters
            assert (held < whole.graph.parameters) is self.shrinks

    def test_exchanges_lie_inside_the_step(self) -> None:
        """Each between the call that makes it possible and the one that waits for it, of a finite size."""
        for _, degree, part in self.cases():
            assert part.exchanges, f"nothing is exchanged over {degree} devices"
            for exchange in part.exchanges:
                assert -1 <= exchange.after < exchange.before <= len(part.graph.calls), exchange
                assert 0 <= exchange.bytes < math.inf, exchange
                assert exchange.name, exchange
                members = math.prod(part.degree(axis) for axis in exchange.axes)
                assert members == degree, f"{exchange.name} among {members} of {degree} devices"

    def test_the_same_program_is_rewritten_in_the_same_way(self) -> None:
        """Nothing random."""
        for whole, degree, part in self.cases():
            again = self.spread(replace(whole), degree)
            assert again.exchanges == part.exchanges
            assert again.graph.calls == part.graph.calls

    def test_a_free_network_costs_nothing_and_a_slower_one_never_less(self) -> None:
        """Exchanges delay a step, each by no more than it takes, and never speed it up."""
        for _, degree, part in self.cases():
            times = _a_second_for_each_call(part.graph)
            free, quick, slow = (compose(part, times, _Rate(seconds)) for seconds in (0.0, 1.0, 10.0))
            assert math.isclose(free.seconds, free.computing_seconds), f"over {degree}"
            assert free.exposed_seconds <= _ROUNDING * free.seconds
            assert free.seconds <= quick.seconds <= slow.seconds
            most = 10.0 * _MICRO_BATCHES * len(part.exchanges)
            assert slow.seconds <= free.seconds + most


class RegisteredStrategySuite(ABC):
    """Inherit it in a test class, with registered strategies and the graphs to try them on."""

    devices: ClassVar[int] = 4

    @abstractmethod
    def strategies(self) -> Sequence[Strategy]:
        """Strategies that are registered while the tests run."""

    @abstractmethod
    def graphs(self) -> Sequence[Graph]:
        """Steps of one device each."""

    def layouts(self, devices: int) -> Iterator[tuple[Strategy, Layout]]:
        """The layout of every word on some devices of one node; strategies of degrees have degree 1."""
        for strategy in self.strategies():
            for text in strategy.words or (f"{strategy.keys[0]}=1",):
                yield strategy, layout_of(text, devices, devices)

    def test_it_is_listed_by_its_name_and_by_its_words(self) -> None:
        """Layouts name the strategy of their replicas."""
        for strategy in self.strategies():
            assert strategies()[strategy.name] is strategy
            assert strategy.form
            assert strategy.words or strategy.keys, f"no text stands for {strategy.name}"
        for strategy, layout in self.layouts(self.devices):
            assert layout.devices == self.devices
            assert (strategy in active_strategies(layout)) == (bool(strategy.words) or strategy.axis is None)
            if strategy.words:
                assert strategy_of(layout.name) is replication(layout) is strategy

    def test_what_it_proposes_or_plans_takes_all_devices(self) -> None:
        """A text names the same layout wherever it is read."""
        for strategy in self.strategies():
            for text in strategy.plan_words:
                assert strategy_of(text) is strategy
                assert layout_of(text, self.devices, self.devices).devices == self.devices
            for layout in strategy.candidates(self.devices, self.devices):
                assert layout.devices == self.devices
                assert layout_of(layout.name, self.devices, self.devices) == layout

    def test_one_device_changes_nothing(self) -> None:
        """Neither the program, nor its times, nor who holds what; nothing is exchanged."""
        for strategy, layout in self.layouts(1):
            for graph in self.graphs():
                whole, times = Program(graph, micro_batches=_MICRO_BATCHES), _a_second_for_each_call(graph)
                assert strategy.divide(whole, layout) is whole
                assert strategy.replicate(whole, layout) is whole
                same = strategy.call_times(times, whole, layout)
                assert np.array_equal(same.device, times.device)
                assert np.array_equal(same.host, times.host)
                assert strategy.shards(layout) == Shards()

    def test_the_closed_form_is_free_on_a_free_network_and_never_negative(self) -> None:
        """Slower exchanges never expose less."""
        sizes, passing = np.array([1e6, 1e8]), np.array([0.5, 1.0])

        def exposed(strategy: Strategy, layout: Layout, seconds_per_byte: float) -> Floats:
            def exchange(_verb: Verb, sent: Floats, _axes: tuple[Axis, ...]) -> Floats:
                return sent * seconds_per_byte

            return strategy.exposed_seconds(layout, sizes, passing, passing, _MICRO_BATCHES, exchange)

        for strategy, layout in self.layouts(self.devices):
            free, quick, slow = (exposed(strategy, layout, rate) for rate in (0.0, 1e-9, 1e-7))
            assert (free == 0.0).all(), strategy.name
            assert (quick >= 0.0).all(), strategy.name
            assert (slow >= quick).all(), strategy.name


class _Rate:
    """Exchanges that take a number of seconds, or none if they have no bytes."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __call__(self, exchange: Exchange) -> float:
        return self._seconds if exchange.bytes else 0.0


def _a_second_for_each_call(graph: Graph) -> CallTimes:
    count = len(graph.calls)
    return CallTimes(np.ones(count), np.zeros(count))


def _flop(graph: Graph) -> float:
    return sum(op.work.flop for op in operators(graph) if op.work.kind in MATRIX_KINDS)
