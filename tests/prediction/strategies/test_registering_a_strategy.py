"""A new strategy is one class: prediction, search, help, plans, guides and launch files find it by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from tests.support.hand_made_steps import gpt2, graph
from tests.support.scenarios import predicted, workload

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import hardware
from foretrain.jobs.configurations import RunConfiguration, best_configuration
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, LengthOptions
from foretrain.planning.guide.cells import machines_named
from foretrain.planning.guide.guide import GuideProblem, guide
from foretrain.planning.launch_files import launch_file
from foretrain.planning.launch_files._base import LaunchPlan
from foretrain.planning.plan import PlanProblem
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.options import strategy_help
from foretrain.prediction.strategies.program import (
    Axis,
    Exchange,
    MemoryOptions,
    Program,
    When,
    parameter_bytes,
)
from foretrain.prediction.strategies.strategy import (
    ExchangeSeconds,
    Layout,
    Strategy,
    forms,
    layout_of,
    plan_words,
    register_strategy,
    strategies,
    whole_number,
)
from foretrain.registry import DuplicateName
from foretrain.testing import RegisteredStrategySuite
from foretrain.workloads.graph import Graph

ON = "gtx1080ti:4"
"""Four GPUs on PCIe: the gradients of the linear voice model are a network choke there."""
TEXT = "local-sgd=8"


class LocalSgd(Strategy):
    """`local-sgd[=H]`: replicas train alone and average their parameters every H steps.

    The average is an all-reduce of all parameters; a step has 1/H of it. Stich 2019, arXiv:1805.09767.
    """

    name = "local-sgd"
    words = ("local-sgd",)
    form = "local-sgd=H"
    launchers = frozenset({"torchrun"})
    plan_words = (TEXT,)
    order = 95

    def claims(self, text: str) -> bool:
        """The word alone, or with a number of steps."""
        return text.partition("=")[0] == self.name

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """Every device is a replica."""
        del devices_per_node
        steps = whole_number(self.name, text.partition("=")[2] or "8")
        return Layout(text, data=devices, replication=self.name, options=(("local_steps", str(steps)),))

    def replicate(self, program: Program, layout: Layout) -> Program:
        """One share of the average, after the update."""
        if layout.data == 1:
            return program
        size, end = parameter_bytes(program.graph) / _steps(layout), len(program.graph.calls)
        average = Exchange("average parameters", Verb.ALL_REDUCE, size, Axis.DATA, end - 1, end, When.LAST)
        return program.with_axis(Axis.DATA, layout.data, average)

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """No buckets: gradients stay on their device."""
        del program, layout
        return options

    def exposed_seconds(
        self,
        layout: Layout,
        sent_bytes: Floats,
        forward: Floats,
        backward: Floats,
        micro_batches: int,
        exchange: ExchangeSeconds,
    ) -> Floats:
        """The whole average: nothing overlaps it."""
        del forward, backward, micro_batches
        return exchange(Verb.ALL_REDUCE, sent_bytes / _steps(layout), (Axis.DATA,))

    def candidates(self, devices: int, devices_per_node: int) -> tuple[Layout, ...]:
        """Averages every 8 steps."""
        return (self.parse(TEXT, devices, devices_per_node),) if devices > 1 else ()

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """How often parameters are averaged."""
        if layout.replication != self.name:
            return ()
        return (("LOCAL_STEPS", str(_steps(layout)), "steps between two averages of the parameters"),)


def _steps(layout: Layout) -> int:
    return int(dict(layout.options)["local_steps"])


LOCAL_SGD = LocalSgd()
VOICE = workload("voice-linear", batch=20)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with register_strategy(LOCAL_SGD):
        yield


class TestLocalSgd(RegisteredStrategySuite):
    def strategies(self) -> Sequence[Strategy]:
        return [LOCAL_SGD]

    def graphs(self) -> Sequence[Graph]:
        return [gpt2(), graph("voice-linear")]


def test_a_step_averages_its_share_of_the_parameters() -> None:
    step = predicted(VOICE, ON, strategy=TEXT)
    (average,) = step.parallelism.exchanges
    whole = parameter_bytes(graph("voice-linear", batch=20))
    assert (average.name, average.bytes, average.members) == ("average parameters", whole / 8, 4)
    assert step.step.exposed_communication_seconds == pytest.approx(average.seconds)
    assert step.strategy == TEXT
    assert step.parallelism.degrees["dp"] == 4


def test_rarer_averages_are_faster_and_need_no_buckets() -> None:
    ddp, often, rarely = (
        predicted(VOICE, ON, strategy=text) for text in ("ddp", "local-sgd=2", "local-sgd=32")
    )
    assert rarely.step.seconds.p50 < often.step.seconds.p50 < ddp.step.seconds.p50
    assert rarely.memory.bytes.p50 < ddp.memory.bytes.p50


def test_one_device_is_plain_training() -> None:
    plain, local = (predicted(VOICE, "gtx1080ti", strategy=text) for text in ("ddp", TEXT))
    assert local.step == plain.step
    assert local.memory == plain.memory


def test_advice_and_scaling_curve_follow_the_strategy() -> None:
    prediction = predicted(VOICE, ON, strategy=TEXT, advice=True)
    assert prediction.parallelism.scaling is not None
    assert [point.devices for point in prediction.parallelism.scaling.points] == [1, 2, 4, 8]
    assert "2x links" in {each.change for each in prediction.bottleneck.advice}


def test_help_and_errors_list_it() -> None:
    assert "local-sgd=H" in forms()
    assert "local-sgd=H" in strategy_help()
    with pytest.raises(InvalidRequest, match="did you mean local-sgd"):
        layout_of("local-sdg", 4, 4)
    with pytest.raises(InvalidRequest, match="local-sgd=none must be a whole number"):
        layout_of("local-sgd=none", 4, 4)


def test_auto_considers_it() -> None:
    """Over slow Ethernet it is faster than data parallelism, of which it sends an eighth."""
    images = workload("cifar-resnet20", batch=16)
    prediction = predicted(images, "t4:1x4", strategy="auto", network="ethernet-1g")
    slower = {each.family: each.slower for each in prediction.parallelism.families}
    assert slower["local-sgd=H"] == 1.0
    assert slower["data parallelism alone"] > 2
    assert prediction.strategy == TEXT


def test_plan_compares_it() -> None:
    assert TEXT in plan_words()
    length = LengthOptions(steps=1000)
    assert TEXT in PlanProblem(VOICE, length).strategies
    limits, jobs = BatchLimits(global_batch=80), length_of(length)
    assert jobs is not None
    chosen = best_configuration(workload("voice-linear"), hardware(ON), jobs, limits)
    assert isinstance(chosen, RunConfiguration)
    assert chosen.strategy == TEXT
    in_full = predicted(VOICE, ON, strategy=TEXT, micro_batches=chosen.micro_batches)
    assert chosen.step_seconds.p50 == pytest.approx(in_full.step.seconds.p50)


def test_guide_fills_its_cells_with_it() -> None:
    machines = machines_named((ON,), ())
    cells = guide(GuideProblem((workload("voice-linear"),), machines, (80,), strategy=TEXT)).models[0].cells
    figures = cells[0][0].figures
    assert figures is not None
    assert figures.run.step_seconds.p50 == pytest.approx(predicted(VOICE, ON, strategy=TEXT).step.seconds.p50)
    with pytest.raises(InvalidRequest, match=r"choose one of .*local-sgd"):
        guide(GuideProblem((workload("voice-linear"),), machines, (80,), strategy="tp=4"))


def test_its_launchers_start_it_and_others_do_not() -> None:
    plan = LaunchPlan("voice", "GTX1080TI", 1, 4, layout_of(TEXT, 4, 4), 80, "fp32")
    assert "export FORETRAIN_LOCAL_STEPS=8" in launch_file("torchrun", plan).text
    assert "export FORETRAIN_STRATEGY=local-sgd=8" in launch_file("torchrun", plan).text
    with pytest.raises(InvalidRequest, match="slurm cannot start local-sgd=8; torchrun can"):
        launch_file("slurm", plan)
    ddp = LaunchPlan("voice", "GTX1080TI", 1, 4, layout_of("ddp", 4, 4), 80, "fp32")
    assert "LOCAL_STEPS" not in launch_file("slurm", ddp).text


class _SameName(LocalSgd):
    words = ("other-sgd",)


class _SameWord(LocalSgd):
    name = "other-sgd"
    words = ("fsdp",)


@pytest.mark.parametrize(("strategy", "claim"), [(_SameName(), "local-sgd"), (_SameWord(), "fsdp")])
def test_names_and_words_of_other_strategies_are_refused(strategy: Strategy, claim: str) -> None:
    with (
        pytest.raises(DuplicateName, match=f"claims '{claim}', which already names"),
        register_strategy(strategy),
    ):
        pass
    assert strategies()["local-sgd"] is LOCAL_SGD


class _Passing(LocalSgd):
    name = "passing"
    words = ("passing",)


def test_a_strategy_is_registered_for_as_long_as_the_context_lasts() -> None:
    with register_strategy(_Passing()):
        assert "passing" in strategies()
    assert "passing" not in strategies()
