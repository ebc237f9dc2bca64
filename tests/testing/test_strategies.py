"""Every strategy against the suite that extensions must pass."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
from tests.support.hand_made_steps import gpt2, graph

from foretrain.prediction import strategies
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.strategies import strategy
from foretrain.prediction.strategies.context import context_parallel
from foretrain.prediction.strategies.data_parallel import data_parallel
from foretrain.prediction.strategies.expert import expert_parallel
from foretrain.prediction.strategies.program import Axis, Program
from foretrain.prediction.strategies.sharded import shard_program
from foretrain.prediction.strategies.single_process import single_process
from foretrain.prediction.strategies.strategy import ExchangeSeconds, Layout, Strategy
from foretrain.prediction.strategies.tensor import tensor_parallel
from foretrain.testing import RegisteredStrategySuite, StrategySuite
from foretrain.workloads.graph import Graph


def small_models() -> list[Graph]:
    return [gpt2(), graph("voice-linear"), graph("mnist-cnn")]


class OverReplicas(StrategySuite):
    """Strategies that work for any model."""

    __test__ = False

    def graphs(self) -> Sequence[Graph]:
        return small_models()


class TestDataParallel(OverReplicas):
    __test__ = True

    def spread(self, program: Program, degree: int) -> Program:
        return data_parallel(program, degree)


class TestCompressed(OverReplicas):
    __test__ = True

    def spread(self, program: Program, degree: int) -> Program:
        return data_parallel(program, degree, compression="bf16")


class TestSingleProcess(OverReplicas):
    __test__ = True

    def spread(self, program: Program, degree: int) -> Program:
        return single_process(program, degree)


class TestZero1(OverReplicas):
    __test__ = True
    stage = 1

    def spread(self, program: Program, degree: int) -> Program:
        return shard_program(program, degree, self.stage)


class TestZero2(TestZero1):
    stage = 2


class TestZero3(TestZero1):
    stage = 3


class TestTensorParallel(StrategySuite):
    divides, shrinks, padding = True, True, 1e-3

    def spread(self, program: Program, degree: int) -> Program:
        return tensor_parallel(program, degree)

    def graphs(self) -> Sequence[Graph]:
        return [gpt2(), graph("voice-linear")]


class TestSequenceParallel(StrategySuite):
    divides, shrinks, padding = True, True, 1e-3

    def spread(self, program: Program, degree: int) -> Program:
        return tensor_parallel(program, degree, sequence_parallel=True)

    def graphs(self) -> Sequence[Graph]:
        return [gpt2()]


class TestContextParallel(StrategySuite):
    divides, padding = True, 0.05

    def spread(self, program: Program, degree: int) -> Program:
        return context_parallel(program, degree)

    def graphs(self) -> Sequence[Graph]:
        return [gpt2()]


class TestExpertParallel(StrategySuite):
    shrinks = True
    degrees = (2,)

    def spread(self, program: Program, degree: int) -> Program:
        return expert_parallel(program, degree)

    def graphs(self) -> Sequence[Graph]:
        return [graph("switch-base-8", batch=1, seq_len=32)]


class TestRegisteredStrategies(RegisteredStrategySuite):
    """Everything in the registry."""

    def strategies(self) -> Sequence[Strategy]:
        return list(strategy.strategies().values())

    def graphs(self) -> Sequence[Graph]:
        return small_models()


def test_the_registry_has_all_strategies() -> None:
    names = {"tensor", "context", "expert", "pipeline", "ddp", "zero", "dp", "parameter-server"}
    assert set(strategy.strategies()) == names


def _named_strategies() -> set[str]:
    """Functions of the package from a program and a degree to a program."""
    names = set()
    for entry in pkgutil.iter_modules(strategies.__path__):
        module = importlib.import_module(f"{strategies.__name__}.{entry.name}")
        for name, value in vars(module).items():
            notes = getattr(value, "__annotations__", {})
            is_ours = getattr(value, "__module__", "") == module.__name__ and not name.startswith("_")
            if is_ours and list(notes)[:2] == ["program", "degree"] and notes.get("return") == "Program":
                names.add(name)
    return names


def test_every_strategy_is_held_to_the_suite() -> None:
    held = {data_parallel, shard_program, single_process, tensor_parallel, context_parallel, expert_parallel}
    assert _named_strategies() == {strategy.__name__ for strategy in held}


def _forgetful(program: Program, degree: int) -> Program:
    """A strategy that is wrong in every way the suite looks for."""
    part = data_parallel(program, max(degree, 2))
    late = tuple(exchange._replace(before=exchange.after) for exchange in part.exchanges)
    half = replace(part.graph, calls=part.graph.calls[: len(part.graph.calls) // 2])
    return replace(part, exchanges=late, graph=half, micro_batches=1)


class _Forgetful(OverReplicas):
    __test__ = False

    def spread(self, program: Program, degree: int) -> Program:
        return _forgetful(program, degree)


@pytest.mark.parametrize(
    "check",
    [
        "test_one_device_changes_nothing",
        "test_degrees_are_counted",
        "test_work_is_conserved",
        "test_exchanges_lie_inside_the_step",
    ],
)
def test_the_suite_finds_what_is_wrong(check: str) -> None:
    with pytest.raises(AssertionError):
        partial(getattr(_Forgetful(), check))()


class _NeverAlone(Strategy):
    """A strategy that exchanges gradients with itself on one device, and gains from slow networks."""

    name = "never-alone"
    words = ("never-alone",)
    form = "never-alone"

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        del devices_per_node
        return Layout(text, data=devices)

    def replicate(self, program: Program, layout: Layout) -> Program:
        return data_parallel(program, max(2, layout.data))

    def exposed_seconds(
        self,
        layout: Layout,
        sent_bytes: Floats,
        forward: Floats,
        backward: Floats,
        micro_batches: int,
        exchange: ExchangeSeconds,
    ) -> Floats:
        del layout, forward, micro_batches
        return backward - exchange(Verb.ALL_REDUCE, sent_bytes, (Axis.DATA,))


class _OfNeverAlone(RegisteredStrategySuite):
    __test__ = False

    def strategies(self) -> Sequence[Strategy]:
        return [strategy.strategies()["never-alone"]]

    def graphs(self) -> Sequence[Graph]:
        return [graph("mnist-cnn")]


@pytest.mark.parametrize(
    "check",
    [
        "test_it_is_listed_by_its_name_and_by_its_words",
        "test_one_device_changes_nothing",
        "test_the_closed_form_is_free_on_a_free_network_and_never_negative",
    ],
)
def test_the_suite_of_the_registry_finds_what_is_wrong(check: str) -> None:
    with strategy.register_strategy(_NeverAlone()), pytest.raises(AssertionError):
        getattr(_OfNeverAlone(), check)()
