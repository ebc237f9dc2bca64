"""Models that must be divided: bounds leave out only what another plan beats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.support.planned import planned, request, workload
from tests.support.shared_home import own_home
from tests.support.smaller_devices import with_memory

from foretrain.errors import Infeasible
from foretrain.jobs.batch_limits import BatchLimits
from foretrain.jobs.length import LengthRequest, length_of
from foretrain.planning.launching import launch_plan
from foretrain.planning.machines import Machines, MachinesRequest, Reasons, Shape, machines
from foretrain.planning.model_parallel import Divided, best_layout, divided
from foretrain.planning.plan import plan
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.units import GIB, HOUR

__all__ = ("own_home",)

BATCH = 24
T4 = MachinesRequest(("t4",), ("gcp",), most_devices=4)


def offered(request: MachinesRequest = T4) -> tuple[Machines, ...]:
    """One machine type for each number of GPUs."""
    by_shape = {each.shape: each for each in reversed(machines(request, Reasons()))}
    return tuple(by_shape.values())


def divide(
    found: Iterable[Machines], left_out: Reasons | None = None, batch: int = BATCH
) -> dict[Shape, Divided]:
    length = length_of(LengthRequest(epochs=10, samples=60_000))
    assert length is not None
    reasons = left_out or Reasons()
    return dict(
        divided(
            workload(),
            OperatorCostModel(),
            length,
            batch,
            found,
            InputOptions(),
            False,
            reasons,
            lambda _: None,
        )
    )


def test_each_shape_has_its_best_layout() -> None:
    found = divide(offered(replace(T4, most_devices=2)))
    assert sorted(shape.devices for shape in found) == [1, 2], "neither is beaten at its peak"
    for shape, told in found.items():
        assert told.hardware.devices == shape.devices
        best = best_layout(workload(), OperatorCostModel(), told.hardware, BATCH, InputOptions())
        assert best is not None
        assert told.way.strategy == best.configuration.layout.name
        assert told.way.step_seconds.p50 == best.seconds
        assert told.way.global_batch == BATCH
        assert told.way.steps == 10 * 60_000 / BATCH
        assert 0 < told.forward_seconds < told.way.step_seconds.p50
        assert told.settle()


def test_what_is_beaten_at_its_peak_already_is_not_searched_and_would_have_lost() -> None:
    """A batch so large that the K80, even at its peak, is slower and dearer than an RTX 5090 as it is."""
    quick, slow = (
        offered(MachinesRequest((gpu,), (cloud,), most_devices=1))
        for gpu, cloud in (("rtx5090", "vast"), ("k80", "azure"))
    )
    reasons = Reasons()
    found = divide([*slow, *quick], reasons, batch=4096)
    assert set(found) == {quick[0].shape}
    (why,) = reasons.told()
    assert why.reason == "even at their peak another plan is faster and cheaper"
    searched = divide(slow, batch=4096)[slow[0].shape]
    won = found[quick[0].shape]
    assert won.way.step_seconds.p50 < searched.way.step_seconds.p50
    assert (
        won.way.step_seconds.p50 * quick[0].offer.usd_per_hour
        < searched.way.step_seconds.p50 * slow[0].offer.usd_per_hour
    )


def test_machines_that_cannot_even_hold_the_state_are_left_out() -> None:
    (one,) = offered(replace(T4, most_devices=1))
    tiny = replace(one, hardware=replace(with_memory("t4", 1e6), name="tiny"))
    reasons = Reasons()
    assert divide([tiny], reasons) == {}
    (why,) = reasons.told()
    assert why.reason == "parameters and optimizer state alone do not fit"


def test_machines_on_which_no_layout_fits_are_left_out() -> None:
    (one,) = offered(replace(T4, most_devices=1))
    small = replace(one, hardware=with_memory("t4", 0.1 * GIB))
    reasons = Reasons()
    assert divide([small], reasons) == {}
    (why,) = reasons.told()
    assert why.reason == "no layout of the model fits"


def test_a_plan_divides_what_does_not_share_out() -> None:
    """A batch of 3 over 8 GPUs: some would get no sample, so layers are divided instead."""
    asked = request(
        machines=MachinesRequest(("v100-sxm2-32gb",), ("aws",), most_devices=8),
        length=LengthRequest(steps=1000),
        batches=BatchLimits(global_batch=3),
    )
    found = planned(asked)
    (only,) = found.plans
    assert only.way.global_batch == 3
    assert only.devices == 8
    assert only.way.strategy not in ("ddp", "zero1", "zero2", "zero3")
    assert only.usd.p50 == pytest.approx(only.seconds.p50 / HOUR * only.usd_per_hour, rel=1e-3)
    assert launch_plan(found, "fp32", "train.py").layout.name == only.way.strategy
    told = plan(replace(asked, strategies=("ddp",)))
    assert isinstance(told, Infeasible)
    assert "the batch does not share out over so many GPUs" in told.available
