"""What every strategy must hold to: one device changes nothing, no work is lost, exchanges fit the step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from foretrain.prediction.cost_models.priced_step import CallTimes
from foretrain.prediction.step.compose import compose
from foretrain.prediction.strategies.program import Exchange, Program
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.rules import operators

_ROUNDING = 1e-9
_MICRO_BATCHES = 3


class StrategySuite(ABC):
    """Inherit it in a test class; say how the strategy spreads a program, and on which graphs to try it.

    `divides` says whether a device is left with its share of the work, as under tensor parallelism, or has
    samples of its own and all the work on them. `padding` is how much more than its share it may have, where
    sizes do not divide evenly. `shrinks` says whether a device holds fewer parameters.
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
        """Steps to spread, of one device each."""

    def cases(self) -> Iterator[tuple[Program, int, Program]]:
        """Every graph spread to every degree."""
        for graph in self.graphs():
            whole = Program(graph, micro_batches=_MICRO_BATCHES)
            for degree in self.degrees:
                yield whole, degree, self.spread(whole, degree)

    def test_one_device_changes_nothing(self) -> None:
        """Not even the object."""
        for graph in self.graphs():
            whole = Program(graph, micro_batches=_MICRO_BATCHES)
            assert self.spread(whole, 1) is whole

    def test_degrees_are_told(self) -> None:
        """All devices are counted, and nothing else about the step changes."""
        for whole, degree, found in self.cases():
            assert found.devices == degree
            assert found.micro_batches == whole.micro_batches
            assert (found.replicas == 1) is self.divides

    def test_work_is_conserved(self) -> None:
        """A device has all the work on samples of its own, or its share of the work on all."""
        for whole, degree, found in self.cases():
            share = 1 / degree if self.divides else 1.0
            ratio = _flop(found.graph) / (share * _flop(whole.graph))
            assert 1 - _ROUNDING <= ratio <= 1 + self.padding + _ROUNDING, f"over {degree}: {ratio} times"

    def test_no_parameter_is_lost(self) -> None:
        """A device holds at most all of them, and all devices together at least all."""
        for whole, degree, found in self.cases():
            held = found.graph.parameters
            assert degree * held >= whole.graph.parameters
            assert held <= whole.graph.parameters
            assert (held < whole.graph.parameters) is self.shrinks

    def test_exchanges_lie_inside_the_step(self) -> None:
        """Each between the call that makes it possible and the one that waits for it, of a finite size."""
        for _, degree, found in self.cases():
            assert found.exchanges, f"nothing is exchanged over {degree} devices"
            for exchange in found.exchanges:
                assert -1 <= exchange.after < exchange.before <= len(found.graph.calls), exchange
                assert 0 <= exchange.bytes < math.inf, exchange
                assert exchange.name, exchange
                members = math.prod(found.degree(axis) for axis in exchange.axes)
                assert members == degree, f"{exchange.name} among {members} of {degree} devices"

    def test_the_same_program_is_spread_in_the_same_way(self) -> None:
        """Nothing random."""
        for whole, degree, found in self.cases():
            again = self.spread(replace(whole), degree)
            assert again.exchanges == found.exchanges
            assert again.graph.calls == found.graph.calls

    def test_a_free_network_costs_nothing_and_a_slower_one_never_less(self) -> None:
        """Exchanges delay a step, each by no more than it takes, and never speed it up."""
        for _, degree, found in self.cases():
            times = _a_second_for_each_call(found.graph)
            free, quick, slow = (compose(found, times, _Rate(seconds)) for seconds in (0.0, 1.0, 10.0))
            assert math.isclose(free.seconds, free.computing_seconds), f"over {degree}"
            assert free.exposed_seconds <= _ROUNDING * free.seconds
            assert free.seconds <= quick.seconds <= slow.seconds
            most = 10.0 * _MICRO_BATCHES * len(found.exchanges)
            assert slow.seconds <= free.seconds + most


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
