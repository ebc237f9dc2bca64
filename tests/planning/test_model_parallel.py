"""Model parallelism: bounds exclude only what another plan beats."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.support.planned import planned, request, workload
from tests.support.smaller_devices import with_memory

from foretrain.answers import Infeasible
from foretrain.jobs.configurations import (
    Configured,
    NoConfiguration,
    best_layout,
    configuration_space,
)
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, LengthOptions
from foretrain.planning.launch_files import launch_plan
from foretrain.planning.machines import Machines, MachinesRequest, Shape, enumerate_machines
from foretrain.planning.plan import plan
from foretrain.planning.table import search_layouts
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions
from foretrain.prediction.strategies.strategy import plan_words
from foretrain.units import GIB, HOUR

BATCH = 24
T4 = MachinesRequest(gpu=("t4",), cloud=("gcp",), max_gpus=4)


def offered(request: MachinesRequest = T4) -> tuple[Machines, ...]:
    """One machine type for each number of GPUs."""
    by_shape = {each.shape: each for each in reversed(enumerate_machines(request)[0])}
    return tuple(by_shape.values())


def searched(machines: Iterable[Machines], batch: int = BATCH) -> dict[Shape, Configured | NoConfiguration]:
    length = length_of(LengthOptions(epochs=10, samples=60_000))
    assert length is not None
    listed = list(machines)
    space = configuration_space(
        workload(),
        [each.hardware for each in listed],
        length,
        BatchLimits(global_batch=batch),
        plan_words(),
        OperatorCostModel(),
        InputOptions(),
    )
    return search_layouts(space, listed, batch, False, lambda _: None)


def configured(choice: Configured | NoConfiguration) -> Configured:
    assert isinstance(choice, Configured)
    return choice


def reason(choice: Configured | NoConfiguration) -> str:
    assert isinstance(choice, NoConfiguration)
    return choice.reason


def test_each_shape_has_its_best_layout() -> None:
    choices = searched(offered(replace(T4, max_gpus=2)))
    assert sorted(shape.devices for shape in choices) == [1, 2], "neither is beaten at its peak"
    for shape, choice in choices.items():
        chosen = configured(choice)
        assert chosen.hardware.devices == shape.devices
        best = best_layout(workload(), OperatorCostModel(), chosen.hardware, BATCH, InputOptions())
        assert best is not None
        configuration = chosen.configuration
        assert configuration.strategy == best.configuration.layout.name
        assert configuration.step_seconds.p50 == best.seconds
        assert configuration.global_batch == BATCH
        assert configuration.steps == 10 * 60_000 / BATCH
        assert 0 < configuration.forward_seconds < configuration.step_seconds.p50
        assert chosen.is_verified


def test_what_is_beaten_at_its_peak_is_not_searched_and_would_have_lost() -> None:
    """A batch so large that the K80, even at its peak, is slower and more expensive than an RTX 5090."""
    quick, slow = (
        offered(MachinesRequest(gpu=(gpu,), cloud=(cloud,), max_gpus=1))
        for gpu, cloud in (("rtx5090", "vast"), ("k80", "azure"))
    )
    choices = searched([*slow, *quick], batch=4096)
    assert reason(choices[slow[0].shape]) == "another plan is faster and cheaper than these at their peak"
    lost = configured(searched(slow, batch=4096)[slow[0].shape]).configuration.step_seconds.p50
    won = configured(choices[quick[0].shape]).configuration.step_seconds.p50
    assert won < lost
    assert won * quick[0].offer.usd_per_hour < lost * slow[0].offer.usd_per_hour


def test_machines_that_cannot_hold_the_state_are_excluded() -> None:
    (one,) = offered(replace(T4, max_gpus=1))
    tiny = replace(one, hardware=replace(with_memory("t4", 1e6), name="tiny"))
    choices = searched([tiny])
    assert reason(choices[one.shape]) == "parameters and optimizer state alone do not fit"


def test_machines_on_which_no_layout_fits_are_excluded() -> None:
    (one,) = offered(replace(T4, max_gpus=1))
    small = replace(one, hardware=with_memory("t4", 0.1 * GIB))
    assert reason(searched([small])[one.shape]) == "no layout of the model fits"


def test_a_plan_searches_layouts_where_the_batch_does_not_divide_evenly() -> None:
    """A batch of 3 over 8 GPUs: some would get no sample, so layers are divided instead."""
    asked = request(
        machines=MachinesRequest(gpu=("v100-sxm2-32gb",), cloud=("aws",), max_gpus=8),
        length=LengthOptions(steps=1000),
        batches=BatchLimits(global_batch=3),
    )
    found = planned(asked)
    (only,) = found.plans
    assert only.configuration.global_batch == 3
    assert only.devices == 8
    assert only.configuration.strategy not in ("ddp", "zero1", "zero2", "zero3")
    billed_seconds = math.ceil(only.seconds.p50)
    assert only.usd.p50 == pytest.approx(billed_seconds / HOUR * only.usd_per_hour, rel=1e-6)
    assert launch_plan(found, "train.py").layout.name == only.configuration.strategy
    infeasible = plan(replace(asked, strategies=("ddp",)))
    assert isinstance(infeasible, Infeasible)
    assert "the batch does not divide evenly over the GPUs" in infeasible.available
