"""From a chosen plan to what launch files need to know."""

from __future__ import annotations

import re
import shlex

from foretrain.errors import InvalidRequest
from foretrain.planning.frontier import Frontier
from foretrain.planning.launch_files._base import LaunchPlan
from foretrain.prediction.strategies.catalogue import layout_of


def launch_plan(frontier: Frontier, precision: str, script: str) -> LaunchPlan:
    """The plan shown, to be launched; the time limit is the 90th percentile of its time.

    `script` is written as in a shell: the file, and its arguments if it takes any.
    """
    plan = frontier.plans[frontier.shown]
    hardware, way = plan.hardware, plan.way
    file, *arguments = _words(script)
    return LaunchPlan(
        name=_job_name(frontier.model, hardware.device.id),
        accelerator=plan.offer.family.upper(),
        nodes=hardware.nodes,
        devices_per_node=hardware.devices_per_node,
        layout=layout_of(way.strategy, hardware.devices, hardware.devices_per_node),
        global_batch=way.global_batch,
        precision=precision,
        micro_batches=way.micro_batches,
        script=file,
        arguments=tuple(arguments),
        provider=plan.offer.provider,
        instance=plan.offer.instance,
        region=plan.offer.region or None,
        spot=plan.spot,
        limit_seconds=plan.seconds.p90,
    )


def _words(script: str) -> list[str]:
    try:
        found = shlex.split(script)
    except ValueError as error:
        raise InvalidRequest(f"the script {script!r} cannot be read as a shell does: {error}") from error
    if not found:
        raise InvalidRequest("a launch file starts a script: name one, e.g. train.py")
    return found


def _job_name(model: str, device: str) -> str:
    """Letters, digits and dashes, beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{model}-{device}").strip("-")
    return name if name[0].isalpha() else f"job-{name}"
