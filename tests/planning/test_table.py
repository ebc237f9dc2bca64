"""The plan table: rows that do not hold when they are verified."""

from __future__ import annotations

from dataclasses import replace

from tests.support.planned import workload
from tests.support.smaller_devices import with_memory

from foretrain.facts.hardware import hardware
from foretrain.jobs.batch_limits import DeviceMemory, capacity_bytes
from foretrain.jobs.configurations import configuration_space
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.jobs.step_table import network_on
from foretrain.planning.machines import Machines, MachinesRequest, enumerate_machines
from foretrain.planning.table import JobConditions, evaluate, verify
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.memory.estimate import communicator_bytes, estimate_memory
from foretrain.prediction.options import InputOptions
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.workload import graph_at

GPT2 = workload("gpt2")
BATCH = 2


def eight_with(memory_bytes: float) -> Machines:
    """A real offer of eight V100s with another memory size."""
    request = MachinesRequest(gpu=("v100-sxm2-32gb",), cloud=("aws",), max_gpus=8)
    eight = next(each for each in enumerate_machines(request)[0] if each.shape.devices == 8)
    small = with_memory("v100-sxm2-32gb", memory_bytes).device
    return replace(eight, hardware=replace(eight.hardware, device=small))


def test_activations_are_recomputed_where_the_estimate_fits_but_the_simulation_does_not() -> None:
    """Between the estimated memory of ZeRO-2 and the simulated one only recomputation fits."""
    on = hardware("v100-sxm2-32gb").device
    estimate = DeviceMemory(lambda batch: graph_at(GPT2, batch), on, BATCH).bytes(BATCH, 2, 8, False, on)
    options = MemoryOptions(data_parallel=8, zero_stage=2)
    simulated = estimate_memory(graph_at(GPT2, BATCH), on, options).bytes
    assert estimate < simulated
    share = capacity_bytes(on) / on.memory_bytes
    offered = eight_with(on.memory_bytes).hardware
    layout = layout_of("zero2", offered.devices, offered.devices_per_node)
    communicators = communicator_bytes(graph_at(GPT2, BATCH), layout, network_on(offered))
    machine = eight_with((estimate * 1.001 + communicators) / share)
    length = length_of(LengthOptions(steps=1000))
    assert length is not None
    space = configuration_space(
        GPT2,
        (machine.hardware,),
        length,
        BatchLimits(batch=BATCH),
        ("zero2",),
        OperatorCostModel(),
        InputOptions(),
    )
    conditions = JobConditions(JobOptions(), None)
    table = evaluate(space, [machine], conditions, lambda _: None)
    (row,) = table.rows
    assert row.chosen.configuration.checkpoint_activations, "the simulation decides, not the estimate"
    assert row.chosen.configuration.memory_bytes <= capacity_bytes(machine.hardware.device)
    verified = verify(table, {0}, conditions)
    assert verified.rows[0].chosen.is_verified
    assert verified.rows[0].time == row.time
    assert verify(verified, {0}, conditions) is verified, "nothing is left to verify"


def test_rows_that_are_not_selected_stay_as_they_are() -> None:
    machines = enumerate_machines(MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=1))[0]
    length = length_of(LengthOptions(epochs=10, samples=60_000))
    assert length is not None
    shapes = {each.shape: each.hardware for each in machines}
    space = configuration_space(
        workload(),
        shapes.values(),
        length,
        BatchLimits(max_global_batch=1024),
        ("ddp",),
        OperatorCostModel(),
        InputOptions(),
    )
    conditions = JobConditions(JobOptions(), 60_000)
    table = evaluate(space, machines, conditions, lambda _: None)
    assert verify(table, set(), conditions) is table
    verified = verify(table, {0}, conditions)
    assert [row.machines for row in verified.rows] == [row.machines for row in table.rows]
    shape = table.rows[0].machines.shape
    for before, after in zip(table.rows, verified.rows, strict=True):
        assert after.chosen.is_verified == (after.machines.shape == shape)
        assert after is before or after.chosen.is_verified
