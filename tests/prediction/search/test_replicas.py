"""Data-parallel steps in closed form agree with the timelines they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.scenarios import context_on

from foretrain.facts.hardware import hardware
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions
from foretrain.prediction.scenario import Evaluation, StepConfiguration, evaluate
from foretrain.prediction.search.sketch import (
    Reduction,
    ReplicaStep,
    gradient_buckets,
    reduction,
    replica_step,
)
from foretrain.prediction.step.input_pipeline import estimate_input
from foretrain.prediction.stragglers import default_jitter
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.graph import Phase
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, graph_at, workload_of


def workload(model: str, precision: str = "fp32") -> Workload:
    """A model of the zoo."""
    return workload_of(WorkloadRequest(model, precision=precision))


def in_full(of: Workload, on: str, batch: int, micro_batches: int) -> Evaluation:
    """The step as `evaluate` composes it."""
    machine = hardware(on)
    context = context_on(of, machine)
    layout = layout_of("ddp", machine.devices, machine.devices_per_node)
    return evaluate(context, StepConfiguration(layout, batch * micro_batches, micro_batches))


def in_closed_form(of: Workload, on: str, batch: int) -> tuple[ReplicaStep, Reduction]:
    """The same step's replica and the reduction of its gradients."""
    machine, graph = hardware(on), graph_at(of, batch)
    context = context_on(of, machine)
    gathered = gradient_buckets(graph)
    step = replica_step(OperatorCostModel().price(graph, machine.device), machine.device, gathered)
    return step, reduction(gathered, machine, context.environment.network)


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("model", "precision", "on", "batch"),
    [
        ("cifar-resnet20", "fp16", "a100-sxm-80gb:8", 16),  # bound by launches
        ("cifar-resnet20", "fp32", "gtx1080ti:4", 256),
        ("voice-linear", "fp32", "gtx1080ti:4", 32),  # bound by the network
        ("bert-base", "fp16", "aws:g5.12xlarge:2", 4),
        ("bert-base", "fp16", "t4", 4),
    ],
)
def test_the_closed_form_is_the_timeline(
    model: str, precision: str, on: str, batch: int, micro_batches: int
) -> None:
    """Time, parts and interval are those of a full evaluation."""
    of = workload(model, precision)
    full = in_full(of, on, batch, micro_batches)
    step, group = in_closed_form(of, on, batch)
    machine = hardware(on)
    one = estimate_input(graph_at(of, batch), machine.device, InputOptions(), machine.devices_per_node)
    assert one.seconds * micro_batches < full.seconds  # input is hidden in these cases
    estimate = step.estimate(group, micro_batches, None, default_jitter(machine.device)).quantiles
    expected = full.total.quantiles
    assert estimate.p50 == pytest.approx(expected.p50, rel=1e-6)
    assert estimate.p90 == pytest.approx(expected.p90, rel=1e-3)
    assert estimate.p10 == pytest.approx(expected.p10, rel=1e-3)
    passing = full.step.run.phases[Phase.FORWARD]
    assert step.forward_seconds(micro_batches) == pytest.approx(passing, rel=1e-6)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.integers(1, 16))
def test_slower_links_never_help_and_more_rounds_never_shorten(costs: list[float], rounds: int) -> None:
    """Monotone in the cost of every bucket and in the number of micro-batches."""
    step, group = _toy()
    slower = Reduction(group.devices, np.array(costs) + 0.1, group.cost)
    quick = Reduction(group.devices, np.array(costs), group.cost)
    seconds = step.seconds([quick, slower], np.array([rounds, rounds + 1]))
    assert seconds[1, 0] >= seconds[0, 0]
    assert seconds[0, 1] >= seconds[0, 0]
    assert seconds[0, 0] >= rounds * step.body + step.update - 1e-12


def test_by_hand() -> None:
    """Body 3, update 1; buckets ready at 1, 2 and 3 take 2 each: they end at 1 + 6 = 7, so the step is 8."""
    step, group = _toy()
    two_each = Reduction(2, np.array([2.0, 2.0, 2.0]), group.cost)
    assert step.seconds([two_each], np.array([1, 2]))[0].tolist() == [8.0, 11.0]


def _toy() -> tuple[ReplicaStep, Reduction]:
    step, group = in_closed_form(workload("mnist-cnn"), "gtx1080ti:2", 8)
    toy = ReplicaStep(
        step=step.step,
        device=step.device,
        forward=0.5,
        backward=2.5,
        update=1.0,
        host=(0.0, 0.0),
        host_forward=0.0,
        ready=(np.array([1.0, 2.0, 3.0]), np.zeros(3)),
    )
    return toy, group
