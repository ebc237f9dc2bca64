"""A task file for SkyPilot, which rents the machines too.

Fields as in https://docs.skypilot.co/en/latest/reference/yaml-spec.html; SkyPilot 0.14.1 reads the files.
"""

from __future__ import annotations

import json
import re

from foretrain.planning.launch_files._base import (
    LaunchPlan,
    LaunchTarget,
    comment,
    environment,
    heading,
    shell_command,
)

_ATTACHED = r"(?P<machine>.+)\+(?P<count>\d+)x(?P<name>.+)"
"""`n1-standard-16+4xT4` (see `facts.providers.HostMachine`): to SkyPilot, a machine and accelerators."""


class SkyPilot(LaunchTarget):
    """`sky launch FILE`."""

    name = "skypilot"
    aliases = ("sky",)
    suffix = ".yaml"
    how_to_start = "sky launch {file}"

    def text(self, plan: LaunchPlan) -> str:
        """The task; with spot, `sky jobs launch` restarts it after an interruption."""
        how = "sky jobs launch {file}" if plan.spot else self.how_to_start
        command = shell_command(plan, '"$SKYPILOT_NODE_RANK"', '"$(echo "$SKYPILOT_NODE_IPS" | sed -n 1p)"')
        lines = [
            *comment(heading(plan, how.format(file=f"{plan.name}{self.suffix}"))),
            f"name: {json.dumps(plan.name)}",
            f"num_nodes: {plan.nodes}",
            "workdir: .  # holds the script; synced to the machines",
            "resources:",
            *_resources(plan),
            "envs:",
        ]
        for variable in environment(plan):
            lines += [f"  # {variable.purpose}", f"  {variable.name}: {json.dumps(variable.value)}"]
        lines += [
            "setup: |",
            "  if [ -f requirements.txt ]; then pip install -r requirements.txt; fi",
            "run: |",
            *(f"  {line}" for line in command),
        ]
        return "\n".join(lines) + "\n"


def _resources(plan: LaunchPlan) -> list[str]:
    lines = []
    if plan.provider:
        place = f"{plan.provider}/{plan.region}" if plan.region else plan.provider
        lines.append(f"  infra: {json.dumps(place)}")
    if plan.instance:
        attached = re.fullmatch(_ATTACHED, plan.instance)
        machine = attached["machine"] if attached else plan.instance
        lines.append(f"  instance_type: {json.dumps(machine)}")
        if attached:
            lines.append(f"  accelerators: {json.dumps('{name}:{count}'.format_map(attached.groupdict()))}")
    else:
        lines += [
            "  # SkyPilot's names: sky show-gpus --all",
            f"  accelerators: {json.dumps(f'{plan.accelerator}:{plan.devices_per_node}')}",
        ]
    return [*lines, f"  use_spot: {'true' if plan.spot else 'false'}"]
