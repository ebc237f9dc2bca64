"""The plan table: rows that do not hold when they are verified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.planned import planned, workload
from tests.support.smaller_devices import with_memory

from foretrain.encoding import to_json
from foretrain.facts.calibrations import calibrations_instead
from foretrain.facts.hardware import hardware
from foretrain.jobs.batch_limits import DeviceMemory, capacity_bytes
from foretrain.jobs.configurations import configuration_space
from foretrain.jobs.length import length_of
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.jobs.step_table import network_on
from foretrain.planning.machines import Machines, MachinesRequest, enumerate_machines
from foretrain.planning.options import Limits
from foretrain.planning.plan import PlanProblem
from foretrain.planning.table import ChoicesByShape, JobConditions, evaluate, verify
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.kept import keep_result, read_result
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
    choices = ChoicesByShape(space, [machine])
    table = evaluate(choices, [machine], conditions, lambda _: None)
    (row,) = table.rows
    assert row.chosen.configuration.checkpoint_activations, "the simulation decides, not the estimate"
    assert row.chosen.configuration.memory_bytes <= capacity_bytes(machine.hardware.device)
    verified = verify(table, {0}, conditions, choices)
    assert verified.rows[0].chosen.is_verified
    assert verified.rows[0].time == row.time
    assert verify(verified, {0}, conditions, choices) is verified, "nothing is left to verify"


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
    choices = ChoicesByShape(space, machines)
    table = evaluate(choices, machines, conditions, lambda _: None)
    assert verify(table, set(), conditions, choices) is table
    verified = verify(table, {0}, conditions, choices)
    assert [row.machines for row in verified.rows] == [row.machines for row in table.rows]
    shape = table.rows[0].machines.shape
    for before, after in zip(table.rows, verified.rows, strict=True):
        assert after.chosen.is_verified == (after.machines.shape == shape)
        assert after is before or after.chosen.is_verified


SHARDED = PlanProblem(
    workload("gpt2-large"),
    LengthOptions(steps=1000),
    batches=BatchLimits(global_batch=64),
    machines=MachinesRequest(gpu=("t4",), cloud=("aws",), max_gpus=8),
)
"""Machines on which the state is sharded or activations are recomputed."""


def test_choices_are_kept_for_plans_with_other_limits(own_home: Path) -> None:
    first = planned(SHARDED)
    (file,) = (own_home / "plans").iterdir()
    again = planned(SHARDED)
    assert to_json(again.to_dict()) == to_json(first.to_dict())
    limited = replace(SHARDED, limits=Limits(deadline=2 * first.plans[0].seconds.p50))
    kept = planned(limited)
    assert [*(own_home / "plans").iterdir()] == [file]
    file.unlink()
    assert to_json(kept.to_dict()) == to_json(planned(limited).to_dict())


def test_kept_choices_need_no_steps() -> None:
    machines = enumerate_machines(SHARDED.machines)[0]
    length = length_of(SHARDED.length)
    assert length is not None
    tables, spaces = [], []
    for _ in range(2):
        space = configuration_space(
            SHARDED.workload,
            [each.hardware for each in machines],
            length,
            SHARDED.batches,
            SHARDED.strategies,
            OperatorCostModel(),
            InputOptions(),
        )
        choices = ChoicesByShape(space, machines)
        conditions = JobConditions(JobOptions(), None)
        table = evaluate(choices, machines, conditions, lambda _: None)
        tables.append(verify(table, range(len(table.rows)), conditions, choices))
        spaces.append(space)
        choices.keep()
    assert [row.plan(1, 1, 1) for row in tables[0].rows] == [row.plan(1, 1, 1) for row in tables[1].rows]
    assert (tables[0].excluded, tables[0].considered) == (tables[1].excluded, tables[1].considered)
    assert [any(name.startswith("_") for name in vars(space.table)) for space in spaces] == [True, False]


def test_choices_by_other_constants_are_not_kept(own_home: Path) -> None:
    with calibrations_instead({"memory.toml": {"usable": {"share": 0.9}}}):
        planned(SHARDED)
    assert not (own_home / "plans").exists()


def test_kept_choices_that_cannot_be_read_are_made_anew(own_home: Path) -> None:
    first = planned(SHARDED)
    (file,) = (own_home / "plans").iterdir()
    empty: dict[str, object] = {name: {} for name in read_result(file)["chosen"]}
    contents: tuple[object, ...] = ({"chosen": 3}, {"chosen": empty}, ["nonsense"])
    for content in contents:
        keep_result(file, content)
        assert to_json(planned(SHARDED).to_dict()) == to_json(first.to_dict())
