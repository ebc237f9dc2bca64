"""Launch files of a plan: the launch targets by name, and the verbs that write a file."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache

from foretrain.errors import InvalidRequest
from foretrain.planning.frontier import Frontier
from foretrain.planning.launch_files._base import LaunchPlan, LaunchTarget, select_launchers
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.registry import Registry, discover


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file to write, by its suggested name."""

    file_name: str
    text: str

    def named(self, file_name: str) -> LaunchFile:
        """The same under another name, also in the comment on how to start it."""
        return LaunchFile(file_name, self.text.replace(self.file_name, shlex.quote(file_name)))


@cache
def launch_targets() -> Registry[LaunchTarget]:
    """All launch targets, by name and alias: every `LaunchTarget` in the modules of this package."""
    known = tuple(discover(__name__, LaunchTarget))  # type: ignore[type-abstract]
    return Registry(
        "launch target",
        known,
        name=lambda target: target.name,
        aliases=lambda target: target.aliases,
        hint=f"Known: {', '.join(target.name for target in known)}",
    )


def launch_file(target: str, plan: LaunchPlan) -> LaunchFile:
    """The launch file of a plan for the target of that name."""
    chosen, able = launch_targets()[target], select_launchers(plan.layout, launch_targets())
    if chosen.name not in able:
        raise InvalidRequest(f"{chosen.name} cannot start {plan.layout.name}; {', '.join(sorted(able))} can")
    return LaunchFile(f"{plan.name}{chosen.suffix}", chosen.text(plan))


def launch_plan(frontier: Frontier, script: str) -> LaunchPlan:
    """The reported plan, to be launched; the time limit is the 90th percentile of its time.

    `script` is written as in a shell: the file and its arguments.
    """
    plan = frontier.plans[frontier.reported]
    hardware, configuration = plan.hardware, plan.configuration
    file, *arguments = _words(script)
    return LaunchPlan(
        name=_job_name(frontier.model, hardware.device.id),
        accelerator=plan.offer.family.upper(),
        nodes=hardware.nodes,
        devices_per_node=hardware.devices_per_node,
        layout=layout_of(configuration.strategy, hardware.devices, hardware.devices_per_node),
        global_batch=configuration.global_batch,
        precision=configuration.precision,
        micro_batches=configuration.micro_batches,
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
        words = shlex.split(script)
    except ValueError as error:
        raise InvalidRequest(f"`script` {script!r} is no valid shell command: {error}") from error
    if not words:
        raise InvalidRequest("a launch file starts a script: give `script`, e.g. train.py")
    return words


def _job_name(model: str, device: str) -> str:
    """Letters, digits and dashes, beginning with a letter."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{model}-{device}").strip("-")
    return name if name[0].isalpha() else f"job-{name}"
