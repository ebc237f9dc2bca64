"""The micro-benchmark: what is timed is what the operator models read, and times are robust."""

from __future__ import annotations

import pytest

from foretrain.measuring import stopwatch
from foretrain.measuring.micro_benchmarks import run_trials, works_of
from foretrain.measuring.stopwatch import Stopwatch
from foretrain.measuring.trials import Operand, OperatorTrial, trials
from foretrain.prediction.operators.cpu import CpuModel
from foretrain.workloads.ops import Direction, Kind, Work


@pytest.fixture(scope="module")
def works() -> dict[OperatorTrial, tuple[Work, ...]]:
    """The works of every trial."""
    return {trial: works_of(trial) for trial in trials()}


def test_every_trial_is_one_piece_of_work_for_each_pass(works: dict[OperatorTrial, tuple[Work, ...]]) -> None:
    for trial, found in works.items():
        assert len(found) == 1 + len(trial.gradients)
        assert all(work.kind.value in trial.kind for work in found)


def test_every_kind_the_model_prices_is_timed(works: dict[OperatorTrial, tuple[Work, ...]]) -> None:
    assert {work.kind for found in works.values() for work in found} == CpuModel.kinds


def test_a_linear_layer_by_hand() -> None:
    trial = next(trial for trial in trials() if trial.kind == "linear")
    forward, to_input, to_weight = works_of(trial)
    (tokens, inputs), (outputs, _), _ = (operand.shape for operand in trial.operands)
    assert forward.flop == to_input.flop == to_weight.flop == 2 * tokens * inputs * outputs
    assert (to_input.direction, to_weight.direction) == (
        Direction.INPUT_GRADIENT,
        Direction.WEIGHT_GRADIENT,
    )
    assert forward.kind is Kind.LINEAR


def test_integers_are_made_below_their_bound() -> None:
    made = Operand((100,), below=7).make("cpu")
    assert 0 <= int(made.min()) <= int(made.max()) < 7


@pytest.mark.usefixtures("quick_measurement")
def test_timings_are_positive_and_progress_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from foretrain.measuring import trials as module

    one = OperatorTrial("elementwise", torch.relu, (Operand((64,)),), ((0,),))
    monkeypatch.setattr(module, "trials", lambda: (one, one))
    reported: list[tuple[str, float]] = []
    found = run_trials(lambda doing, share: reported.append((doing, share)), seconds=0.01)
    assert reported == [("waiting for idle cores", 0.0), ("elementwise", 0.0), ("elementwise", 0.5)]
    assert [item.work.direction for item in found] == [Direction.FORWARD, Direction.BACKWARD] * 2
    assert all(item.seconds > 0 for item in found)


class FakeTime:
    """A clock with given readings and given counts of involuntary context switches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, laps: list[tuple[float, int]]) -> None:
        self.laps, self.now, self.switches = laps, 0.0, 0
        monkeypatch.setattr(stopwatch, "_switches", lambda: self.switches)

    def run(self, watch: Stopwatch) -> None:
        watch._clock = lambda: self.now
        for taken, switches in self.laps:
            with watch:
                self.now += taken
                self.switches += switches


def test_disturbed_times_do_not_count_and_the_first_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch(threads=2)
    FakeTime(monkeypatch, [(9.0, 0), (1.0, 3), (4.0, 0), (5.0, 0), (6.0, 0), (7.0, 0), (8.0, 0)]).run(watch)
    assert watch.seconds == 5.0  # the lower quartile of 4 ... 8
    assert watch.runs == 7


def test_where_all_are_disturbed_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch(threads=2)
    FakeTime(monkeypatch, [(9.0, 1), (3.0, 2), (4.0, 1)]).run(watch)
    assert watch.seconds == 3.0
