"""From a chosen plan to what launch files say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.planned import planned, request

from foretrain.planning.frontier import Frontier
from foretrain.planning.launch_files import launch_file, launch_plan, launch_targets


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
