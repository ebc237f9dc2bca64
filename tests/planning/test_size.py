"""The size of a model within money and time: limits are kept, machines are the best, more money is better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.answers import Infeasible
from foretrain.convergence.scaling_laws import laws
from foretrain.errors import InvalidRequest, UnknownName
from foretrain.jobs.configurations import Configured, configure
from foretrain.jobs.options import JobOptions
from foretrain.planning import size as core
from foretrain.planning.machines import MachinesRequest, enumerate_machines
from foretrain.planning.options import Limits
from foretrain.planning.size import SizeAnswer, SizeProblem, best_run, size, size_ladder
from foretrain.planning.table import JobConditions
from foretrain.workloads.options import WorkloadRequest

DAY, HOUR = 86_400.0, 3_600.0
FEW = MachinesRequest(gpu=("a10g",), cloud=("aws",), max_gpus=4)


def problem(machines: MachinesRequest = FEW, **given: Any) -> SizeProblem:
    limits = {key: given.pop(key) for key in ("budget", "deadline", "confidence") if key in given}
    return SizeProblem(Limits(**limits), WorkloadRequest(model=""), machines, **given)


def answer(machines: MachinesRequest = FEW, **given: Any) -> SizeAnswer:
    found = size(problem(machines, **given))
    assert isinstance(found, SizeAnswer)
    return found


def test_the_chosen_size_has_the_least_loss_and_keeps_the_limits() -> None:
    found = answer(budget=20, deadline=12 * HOUR)
    run, law = found.run, laws()["besiroglu-2024"]
    assert run.losses[law.name] == min(each.losses[law.name] for each in found.runs)
    assert 0 < found.chosen < len(found.runs) - 1
    for each in found.runs:
        assert each.plan.usd.p50 <= 20 * (1 + 1e-9)
        assert each.plan.seconds.p50 <= 12 * HOUR
        assert each.plan.both >= 0.5
        assert each.plan.configuration.is_safe
        steps = each.plan.configuration.steps
        assert each.tokens == steps * each.plan.configuration.global_batch * each.shape.seq_len
        assert each.losses[law.name] == pytest.approx(law.regret(each.shape, each.tokens))
    assert found.loss.p50 == pytest.approx(run.losses[law.name])
    assert found.loss.p10 < found.loss.p50 < found.loss.p90


def test_one_more_step_would_break_a_limit() -> None:
    asked = problem(budget=20, deadline=12 * HOUR)
    found = size(asked)
    assert isinstance(found, SizeAnswer)
    machines, _ = enumerate_machines(FEW)
    on = next(each for each in machines if each.hardware.name == found.run.plan.hardware.name)
    chosen = Configured(on.hardware, found.run.plan.configuration)
    steps = core._most_steps(asked, chosen, on, JobConditions(JobOptions(), None))
    assert steps == found.run.plan.configuration.steps


def test_no_other_machine_trains_on_more_tokens() -> None:
    """The search prunes by bounds: predicting all machines finds nothing better."""
    everywhere = MachinesRequest(gpu=("a10g", "l4", "t4", "a100", "rtx4090"), max_gpus=8)
    machines, _ = enumerate_machines(everywhere)
    asked = core.in_one_precision(problem(everywhere, budget=10, deadline=6 * HOUR), machines)
    offers = core._offers_by_shape(asked, machines)
    shape = size_ladder(asked)[2]
    best = best_run(asked, shape, offers)
    assert best is not None
    workload = core._workload(asked, shape)
    bounds = core.peak_tokens(asked, workload, offers)
    space = core._space(asked, workload, shape, offers.values(), max(bounds.values()))
    conditions = JobConditions(asked.options, None)
    others = []
    for key, each in offers.items():
        if not bounds[key]:  # no BF16
            continue
        configured = configure(space, each.hardware)
        if isinstance(configured, Configured) and configured.configuration.is_safe:
            others.append(core._tokens(asked, configured, each, conditions, shape))
    assert len(others) > 5
    assert best.tokens == pytest.approx(max(others), rel=0.01)  # memory of the best is simulated


@settings(max_examples=8, deadline=None)
@given(st.floats(2, 60), st.floats(1.2, 4))
def test_more_money_has_no_more_loss(budget: float, factor: float) -> None:
    less, more = (answer(budget=each, deadline=2 * DAY) for each in (budget, budget * factor))
    assert more.loss.p50 <= less.loss.p50 * (1 + 1e-3)  # whole steps and whole hours of a bill
    assert more.run.shape.parameters * 1.5 > less.run.shape.parameters


def test_devices_without_bf16_train_in_fp16() -> None:
    older = answer(MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=1), budget=5, params=1e8)
    assert older.run.plan.configuration.precision == "fp16"
    assert answer(budget=5, params=1e8).run.plan.configuration.precision == "bf16"


def test_budget_or_deadline_alone() -> None:
    by_time = answer(deadline=6 * HOUR)
    assert by_time.budget_usd is None
    assert by_time.run.plan.seconds.p50 <= 6 * HOUR
    by_money = answer(budget=5)
    assert by_money.deadline_seconds is None
    assert by_money.run.plan.usd.p50 <= 5


def test_the_best_size_is_that_of_the_closed_form() -> None:
    """Where throughput hardly depends on the size, the law's own optimum for the compute that was spent."""
    found = answer(budget=50, deadline=2 * DAY)
    law = laws()["besiroglu-2024"]
    best, _ = law.optimum(law.flop(found.run.shape, found.run.tokens))  # type: ignore[attr-defined]
    assert 0.5 < found.run.shape.parameters_with_embedding / best < 2


def test_laws_prefer_different_sizes_and_choose() -> None:
    by_default = answer(budget=20, deadline=12 * HOUR)
    assert [each.law for each in by_default.optima] == list(laws())
    kaplan = answer(budget=20, deadline=12 * HOUR, law="kaplan-2020")
    assert kaplan.law == "kaplan-2020" and kaplan.forecast.law == "besiroglu-2024"
    assert any("kaplan-2020 chooses a size but predicts no loss" in note for note in kaplan.notes)
    assert kaplan.loss.p50 >= by_default.loss.p50


def test_a_given_size() -> None:
    found = answer(params=7e8, budget=20)
    assert len(found.runs) == 1 and found.optima == () and found.for_serving is None
    assert found.run.shape.parameters == pytest.approx(7e8, rel=0.15)
    assert found.is_fixed
    assert any("nearest to 700M parameters" in note for note in found.notes)


def test_confidence_leaves_slack() -> None:
    even = answer(budget=20, deadline=12 * HOUR, params=3e8)
    sure = answer(budget=20, deadline=12 * HOUR, params=3e8, confidence=0.9)
    assert sure.run.tokens < even.run.tokens
    assert sure.run.plan.both >= 0.9


def test_extrapolation_is_noted() -> None:
    found = answer(budget=0.5, params=1e8)
    assert any(note.startswith("extrapolated: besiroglu-2024 was fitted on 245M to") for note in found.notes)


def test_the_serving_option_has_at_most_about_half() -> None:
    found = answer(budget=20, deadline=12 * HOUR)
    assert found.for_serving is not None
    smaller = found.runs[found.for_serving]
    assert smaller.shape.parameters <= 0.55 * found.run.shape.parameters
    assert smaller.tokens > found.run.tokens


def test_what_cannot_be_done_is_refused_or_infeasible() -> None:
    with pytest.raises(InvalidRequest, match=r"size needs a limit: give `budget` \(e.g. 1000usd\)"):
        problem()
    with pytest.raises(InvalidRequest, match="`budget` must be above 0, got -5"):
        problem(budget=-5)
    with pytest.raises(UnknownName, match="no scaling law 'hofman-2022'; did you mean hoffmann-2022"):
        problem(budget=5, law="hofman-2022")
    with pytest.raises(InvalidRequest, match="`params` must be at least 1, got -7"):
        problem(budget=5, params=-7)
    nothing = size(problem(budget=0.001))
    assert isinstance(nothing, Infeasible)
    assert "none within a budget of $0.001" in str(nothing)
    large = size(problem(budget=100, params=70e9))
    assert isinstance(large, Infeasible) and "llama-65.3B" in str(large)
    absent = size(problem(replace(FEW, cloud=("lambda",)), budget=5))
    assert isinstance(absent, Infeasible) and "no current offer of a10g by lambda" in str(absent)
