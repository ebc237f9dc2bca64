"""A step on one device, composed by hand: one second per kernel, on a host that is quick or slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.support.small_models import graph

from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device
from foretrain.prediction.cost_models import WAITING, estimate_step, exchange_launch_seconds, price_step
from foretrain.prediction.operators.host import (
    HostModel,
    host_model,
)
from foretrain.prediction.operators.pricing import (
    Confidence,
    Floats,
    Knowledge,
    Listing,
    OperatorModel,
    WorkTable,
)
from foretrain.workloads.graph import Phase, with_options
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import operators

QUICK = HostModel(1e-3, 0.0, 1e-3, 1e-3, 0.0, 5e-4, 0.0, 1e-3, p10=0.5, p90=1.5, source="a host")
SLOW = replace(
    QUICK,
    forward_seconds=10.0,
    backward_seconds=10.0,
    optimizer_seconds=10.0,
    compiled_kernel_seconds=5.0,
    captured_seconds=10.0,
)


class OneSecondEach(OperatorModel):
    """Every kernel takes a second, give or take ten percent."""

    name = "one second each"
    kinds = frozenset(Kind) - {Kind.VIEW}

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        return np.ones(len(works))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        return Confidence(Knowledge.CALIBRATED, 0.9, 1.1, "a clock")


T4 = device("t4")
MLP = graph("mlp", optimizer="sgd")
KERNELS = {phase: sum(op.phase is phase for op in operators(MLP) if op.work.kernels) for phase in Phase}


def test_kernels_add_up_when_the_host_is_quick() -> None:
    step = estimate_step(MLP, T4, [OneSecondEach()], QUICK)
    assert step.seconds == pytest.approx(sum(KERNELS.values()))
    assert step.waiting_seconds == pytest.approx(0)
    assert step.phases == pytest.approx(KERNELS)


def test_a_slow_host_sets_the_pace_and_shows_as_waiting() -> None:
    step = estimate_step(MLP, T4, [OneSecondEach()], SLOW)
    kernels = sum(KERNELS.values())
    assert step.seconds == pytest.approx(10 * kernels)
    assert step.waiting_seconds == pytest.approx(9 * kernels)
    assert WAITING in [part.name for part in step.estimate.visible]


def test_compiling_spares_the_host() -> None:
    # 5 s a kernel forward and backward; the update is launched as before
    compiled = with_options(MLP, compile=True)
    expected = 5 * (KERNELS[Phase.FORWARD] + KERNELS[Phase.BACKWARD]) + 10 * KERNELS[Phase.OPTIMIZER]
    assert estimate_step(compiled, T4, [OneSecondEach()], SLOW).seconds == pytest.approx(expected)


def test_a_compiled_step_enters_two_graphs() -> None:
    compiled = with_options(MLP, compile=True)
    plain = estimate_step(compiled, T4, [OneSecondEach()], SLOW)
    entering = estimate_step(compiled, T4, [OneSecondEach()], replace(SLOW, compiled_call_seconds=100.0))
    assert entering.host_seconds == pytest.approx(plain.host_seconds + 200)


def test_libraries_cost_the_host_more() -> None:
    # two linear layers forward
    products = sum(op.work.kind is Kind.LINEAR for op in operators(MLP) if op.phase is Phase.FORWARD)
    plain = estimate_step(MLP, T4, [OneSecondEach()], SLOW)
    dear = estimate_step(MLP, T4, [OneSecondEach()], replace(SLOW, library_seconds=7.0))
    assert products > 0
    assert dear.host_seconds == pytest.approx(plain.host_seconds + 7 * products)


def test_a_captured_graph_is_launched_once() -> None:
    captured = with_options(MLP, cuda_graphs=True)
    step = estimate_step(captured, T4, [OneSecondEach()], SLOW)
    assert step.seconds == pytest.approx(sum(KERNELS.values()))
    assert step.host_seconds == pytest.approx(10)


def test_parts_sum_to_the_step_and_one_source_errs_together() -> None:
    step = estimate_step(MLP, T4, [OneSecondEach()], QUICK)
    assert sum(part.value for part in step.estimate.visible) == pytest.approx(step.seconds)
    assert step.estimate.quantiles.p90 == pytest.approx(1.1 * step.seconds)
    assert step.knowledge is Knowledge.CALIBRATED


def test_waiting_for_every_step_is_never_quicker() -> None:
    steady = estimate_step(MLP, T4, [OneSecondEach()], SLOW)
    waited = estimate_step(MLP, T4, [OneSecondEach()], SLOW, synchronised=True)
    assert waited.seconds >= steady.seconds


def test_a_kind_without_a_model_is_an_error() -> None:
    with pytest.raises(MissingData, match="no operator model prices"):
        estimate_step(MLP, T4, [], QUICK)


BY_KIND = replace(QUICK, forward_seconds=1.0, library_seconds=10.0, backward_seconds=100.0)


def test_recomputation_is_launched_like_a_forward_pass() -> None:
    listing = Listing(operators(graph("mlp", optimizer="sgd")))
    again = Listing(tuple(op._replace(phase=Phase.BACKWARD, recomputed=True) for op in listing.ops))
    forward = [op.phase is Phase.FORWARD for op in listing.ops]
    launched, repeated = (BY_KIND.seconds(each, compiled=False)[forward] for each in (listing, again))
    assert launched.tolist() == repeated.tolist()
    assert launched.sum() == 2 * 11 + 3  # two linear layers of a library, three other kernels


def test_autograd_functions_in_python_launch_the_backward_passes_of_layers_like_forward_ones() -> None:
    listing = Listing(operators(MLP))
    plain, python = (BY_KIND.seconds(listing, compiled=False, in_python=each) for each in (False, True))
    is_layer = [op.phase is Phase.BACKWARD and op.work.kind is Kind.LINEAR for op in listing.ops]
    assert set(plain[is_layer]) == {100.0} and set(python[is_layer]) == {11.0}
    assert plain[np.invert(is_layer)].tolist() == python[np.invert(is_layer)].tolist()


def test_research_frameworks_launch_slower_by_what_was_timed() -> None:
    slow = replace(SLOW, framework_factor=3.0)
    timed = with_options(MLP, framework="nanotron")
    plain, theirs = (estimate_step(each, T4, [OneSecondEach()], slow) for each in (MLP, timed))
    assert theirs.host_seconds == pytest.approx(3 * plain.host_seconds)
    assert exchange_launch_seconds(price_step(timed, T4, [OneSecondEach()], slow)) == 30.0
    assert exchange_launch_seconds(price_step(MLP, T4, [OneSecondEach()], slow)) == 10.0


def test_the_shipped_factor_is_that_of_the_hosts_of_a_gpu_or_of_all() -> None:
    assert 2 < host_model(device("a100-sxm-80gb")).framework_factor < 3.5
    assert host_model(T4).framework_factor == host_model(device("l4")).framework_factor > 2
