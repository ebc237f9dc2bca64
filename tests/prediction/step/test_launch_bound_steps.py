"""Steps on many devices that launches hold up."""

import numpy as np
import pytest

from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.cost_models import CallTimes
from foretrain.prediction.step.compose import compose, passes
from foretrain.prediction.strategies.program import Axis, Exchange, Program, When
from foretrain.workloads.graph import Call, Graph, Phase
from foretrain.workloads.options import ResolvedOptions


def _program(*exchanges: Exchange, micro_batches: int = 1, framework: str = "pytorch") -> Program:
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    calls = tuple(Call("aten.relu", phase, "", (), (), (), (), {}) for phase in phases)
    graph = Graph((), calls, (), (), 1, 1, 0, ResolvedOptions(framework=framework))
    return Program(graph, tuple(exchanges), micro_batches=micro_batches)


def _times(device: tuple[float, ...], host: tuple[float, ...]) -> CallTimes:
    return CallTimes(np.array(device), np.array(host))


REDUCTION = Exchange("all-reduce", Verb.ALL_REDUCE, 8.0, Axis.DATA, after=1, before=2, when=When.LAST)


def test_a_slow_host_sets_the_pace_and_gradients_are_still_reduced_after_the_backward_pass() -> None:
    run = compose(_program(REDUCTION, micro_batches=4), _times((1, 1, 1), (3, 2, 1)), lambda _: 10.0)
    assert run.seconds == pytest.approx(4 * (3 + 2) + 1 + 10, rel=1e-3)
    assert run.waiting_seconds == pytest.approx(21 - 9)


def test_a_fast_host_costs_nothing() -> None:
    run = compose(_program(REDUCTION, micro_batches=4), _times((3, 5, 1), (1, 1, 1)), lambda _: 10.0)
    assert run.seconds == 4 * 8 + 1 + 10
    assert run.waiting_seconds == 0


@pytest.mark.parametrize(("framework", "seconds"), [("pytorch", 25), ("nanotron", 4 * (3 + 5) + 1)])
def test_a_host_that_waits_at_every_micro_batch_starts_it_with_an_idle_device(
    framework: str, seconds: float
) -> None:
    """Forward 1 s of kernels, 3 s of launches; backward 5 and 2: else the host runs ahead."""
    of = _program(micro_batches=4, framework=framework)
    run = compose(of, _times((1, 5, 1), (3, 2, 1)), lambda _: 0.0)
    assert run.seconds == pytest.approx(seconds)
    assert run.waiting_seconds == pytest.approx(seconds - 25)


def test_each_pass_of_a_stage_takes_at_least_its_own_launches() -> None:
    passing = passes(_program(REDUCTION), _times((1, 5, 1), (3, 2, 4)), lambda _: 10.0)
    assert (passing.forward, passing.backward, passing.optimizer) == (3, 5, 4)
    assert passing.tail == 10
    assert passing.waiting == 2
