"""All targets of launch files, by name; and the verb that writes one."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache

from foretrain.planning.launch_files._base import LaunchPlan, LaunchTarget
from foretrain.planning.launch_files.ray import Ray
from foretrain.planning.launch_files.skypilot import SkyPilot
from foretrain.planning.launch_files.slurm import Slurm
from foretrain.planning.launch_files.torchrun import Torchrun
from foretrain.registry import Registry


@dataclass(frozen=True, slots=True)
class LaunchFile:
    """A file to write, by its suggested name."""

    file_name: str
    text: str

    def named(self, file_name: str) -> LaunchFile:
        """The same under another name, in the comment on how to start it too."""
        return LaunchFile(file_name, self.text.replace(self.file_name, shlex.quote(file_name)))


@cache
def launch_targets() -> Registry[LaunchTarget]:
    """The targets; two of one name are refused."""
    known = (Torchrun(), Slurm(), SkyPilot(), Ray())
    return Registry(
        "launch target",
        known,
        name=lambda target: target.name,
        aliases=lambda target: target.aliases,
        hint=f"Known: {', '.join(target.name for target in known)}",
    )


def launch_file(target: str, plan: LaunchPlan) -> LaunchFile:
    """The launch file of a plan for the target of that name."""
    chosen = launch_targets()[target]
    return LaunchFile(f"{plan.name}{chosen.suffix}", chosen.text(plan))
