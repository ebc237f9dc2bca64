"""From a chosen plan to what launch files say."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from tests.support.planned import planned, request

from foretrain.planning.frontier import Frontier
from foretrain.planning.launch_files import launch_file, launch_plan, launch_targets
from foretrain.planning.launch_files._base import NOT_VARIABLES, STEP_VARIABLES, environment
from foretrain.workloads.options import StepOptions, WorkloadRequest
from foretrain.workloads.workload import workload_of


@pytest.fixture(scope="module")
def frontier() -> Frontier:
    """A small model on a few machines."""
    return planned(request())


def test_the_plan_shown_is_launched_as_it_was_planned(frontier: Frontier) -> None:
    launch, shown = launch_plan(frontier, "run.py"), frontier.plans[frontier.reported]
    assert (launch.provider, launch.instance) == (shown.offer.provider, shown.offer.instance)
    assert (launch.nodes, launch.devices_per_node) == (shown.machines, shown.hardware.devices_per_node)
    assert launch.devices == shown.devices
    assert launch.global_batch == shown.configuration.global_batch
    assert launch.micro_batch * launch.micro_batches == shown.configuration.batch
    assert (launch.precision, launch.script, launch.spot) == (shown.configuration.precision, "run.py", False)
    assert launch.limit_seconds == shown.seconds.p90, "killed in one case of ten, and not in five"


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3"])
def test_every_strategy_that_is_planned_can_be_launched(frontier: Frontier, strategy: str) -> None:
    index = next(place for place, each in enumerate(frontier.plans) if each.machines == 2)
    plan = frontier.plans[index]
    plans = list(frontier.plans)
    plans[index] = replace(plan, spot=True, configuration=replace(plan.configuration, strategy=strategy))
    launch = launch_plan(replace(frontier, plans=tuple(plans), reported=index), "train.py")
    assert (launch.layout.name, launch.layout.devices, launch.spot) == (strategy, plan.devices, True)
    for target in launch_targets().values():
        file = launch_file(target.name, launch)
        assert file.file_name.startswith("mnist-cnn-")
        assert "FORETRAIN_STRATEGY" in file.text and strategy in file.text


@pytest.mark.parametrize(
    ("model", "name"),
    [("llama3.2-1b", "llama3-2-1b-"), ("my model.py", "my-model-py-"), ("3d-unet", "job-3d-unet-")],
)
def test_names_of_jobs_have_letters_digits_and_dashes(frontier: Frontier, model: str, name: str) -> None:
    launch = launch_plan(replace(frontier, model=model), "train.py")
    assert launch.name.startswith(name)


def variables_of(frontier: Frontier, strategy: str = "ddp", **asked: Any) -> dict[str, str]:
    """The variables of the reported plan, had the job been asked for with other options."""
    workload = workload_of(WorkloadRequest("bert-tiny", **asked))
    reported = frontier.plans[frontier.reported]
    configuration = replace(
        reported.configuration,
        strategy=strategy,
        precision=asked.get("precision", "fp32"),
        checkpoint_activations=workload.options.checkpoint_activations,
    )
    plans = list(frontier.plans)
    plans[frontier.reported] = replace(reported, configuration=configuration)
    launch = launch_plan(replace(frontier, workload=workload, plans=tuple(plans)), "train.py")
    return {variable.name.removeprefix("FORETRAIN_"): variable.value for variable in environment(launch)}


def test_every_option_of_a_step_is_a_variable_or_known_not_to_be_one() -> None:
    assert set(STEP_VARIABLES) | NOT_VARIABLES == {field.name for field in fields(StepOptions)}
    assert not set(STEP_VARIABLES) & NOT_VARIABLES


def test_launch_files_say_model_sizes_adapters_and_options_of_the_step(frontier: Frontier) -> None:
    found = variables_of(
        frontier, precision="bf16", lora="r=8,targets=query+value,half", seq_len=64, optimizer="lion",
        compile=True, selective_checkpointing=True, offload=("activations",),
    )  # fmt: skip
    expected = {
        "MODEL": "bert-tiny", "SEQ_LEN": "64", "LORA": "r=8,targets=query+value,half", "OPTIMIZER": "lion",
        "COMPILE": "1", "CHECKPOINT_ACTIVATIONS": "1", "SELECTIVE_CHECKPOINTING": "1", "ATTENTION": "sdpa",
        "OFFLOAD": "activations", "PRECISION": "bf16", "WEIGHTS": "bf16", "AUTOCAST": "1",
        "STEPS": str(frontier.plans[frontier.reported].configuration.steps),
    }  # fmt: skip
    assert expected.items() <= found.items()


def test_what_is_off_has_no_variable_and_what_the_model_sets_is_stated(frontier: Frontier) -> None:
    found = variables_of(frontier)
    assert found["SEQ_LEN"] == "128", "BERT-Tiny's own, which the request left out"
    assert not {"LORA", "COMPILE", "CHECKPOINT_ACTIVATIONS", "AUTOCAST", "OFFLOAD", "IMAGE_SIZE"} & set(found)


@pytest.mark.parametrize(
    ("strategy", "weights"),
    [("ddp", ("fp32", None, "1")), ("zero1", ("bf16", "1", None)), ("fsdp", ("bf16", "1", None))],
)
def test_weights_are_stored_as_the_strategy_was_predicted(
    frontier: Frontier, strategy: str, weights: tuple[str, str | None, str | None]
) -> None:
    found = variables_of(frontier, strategy, precision="bf16")
    assert (found["WEIGHTS"], found.get("MASTER_WEIGHTS"), found.get("AUTOCAST")) == weights
