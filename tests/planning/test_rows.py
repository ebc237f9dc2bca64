"""Rows of a plan: what does not hold when it is looked at in full."""

from __future__ import annotations

from dataclasses import replace

from tests.support.planned import workload
from tests.support.shared_home import own_home
from tests.support.smaller_devices import with_memory

from foretrain.facts.hardware import hardware
from foretrain.jobs.batch_limits import BatchLimits
from foretrain.jobs.device_memory import DeviceMemory, capacity_bytes
from foretrain.jobs.job import JobOptions
from foretrain.jobs.length import LengthRequest, length_of
from foretrain.planning.machines import Machines, MachinesRequest, Reasons, machines
from foretrain.planning.table import Rows
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.workload import graph_at

__all__ = ("own_home",)

GPT2 = workload("gpt2")
BATCH = 2


def eight_with(memory_bytes: float) -> Machines:
    """A real offer of eight V100s, as if they had so much memory."""
    found = machines(MachinesRequest(("v100-sxm2-32gb",), ("aws",), most_devices=8), Reasons())
    eight = next(each for each in found if each.shape.devices == 8)
    small = with_memory("v100-sxm2-32gb", memory_bytes).device
    return replace(eight, hardware=replace(eight.hardware, device=small))


def test_activations_are_recomputed_where_what_was_sketched_to_fit_does_not() -> None:
    """Between the memory that is sketched of ZeRO-2 and what it takes nothing holds but recomputing."""
    on = hardware("v100-sxm2-32gb").device
    sketched = DeviceMemory(lambda batch: graph_at(GPT2, batch), on, BATCH).bytes(BATCH, 2, 8, False, on)
    options = MemoryOptions(data_parallel=8, zero_stage=2)
    needed = estimate_memory(graph_at(GPT2, BATCH), on, options).bytes
    assert sketched < needed
    share = capacity_bytes(on) / on.memory_bytes
    machine = eight_with((sketched * 1.001) / share)
    length = length_of(LengthRequest(steps=1000))
    assert length is not None
    rows = Rows(GPT2, OperatorCostModel(), length, BatchLimits(batch=BATCH), JobOptions(), None)
    left_out = Reasons()
    rows.fill([machine], ("zero2",), InputOptions(), left_out, lambda _: None)
    assert [each.way.checkpoint_activations for each in rows.plans] == [False], "by the sketch it fits"
    assert not rows.settle([0], left_out)
    assert [each.way.checkpoint_activations for each in rows.plans] == [True]
    assert left_out.told() == ()
    assert rows.settle([0], left_out), "nothing is left in doubt"
    (plan,) = rows.plans
    assert plan.way.memory_bytes <= capacity_bytes(machine.hardware.device)
