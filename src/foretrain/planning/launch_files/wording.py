"""Lines that launch files share: the heading, exports, and torchrun's command in a shell."""

from __future__ import annotations

import shlex

from foretrain.planning.launch_files._base import MASTER_PORT, LaunchPlan
from foretrain.planning.launch_files.environment import environment


def heading(plan: LaunchPlan, how_to_start: str) -> list[str]:
    """What the file is for, without comment signs."""
    machine = " ".join(part for part in (plan.provider, plan.instance, plan.region) if part)
    hardware = f"{plan.nodes} x {plan.devices_per_node} {plan.accelerator}"
    return [
        f"{plan.name}: {plan.layout.name} on {hardware}{f' ({machine})' if machine else ''}"
        f"{', spot' if plan.spot else ''}",
        f"{plan.precision}, batch {plan.global_batch}: {plan.layout.replicas} replicas x "
        f"{plan.micro_batches} micro-batches x {plan.micro_batch} samples",
        f"Written by foretrain. Start it: {how_to_start}",
    ]


def exports(plan: LaunchPlan) -> list[str]:
    """The environment as shell lines, each with its purpose above."""
    lines = []
    for variable in environment(plan):
        lines += [f"# {variable.purpose}", f"export {variable.name}={shlex.quote(variable.value)}"]
    return lines


def user_command(plan: LaunchPlan) -> str:
    """The user's script and its arguments, quoted for a shell."""
    return shlex.join((plan.script, *plan.arguments))


def shell_command(plan: LaunchPlan, rank: str, master: str) -> list[str]:
    """The lines that start one node's processes; `rank` and `master` are shell expressions."""
    if plan.layout.is_single_process:
        return [f"python {user_command(plan)}"]
    if plan.nodes == 1:
        start = [f"torchrun --standalone --nproc-per-node={plan.processes_per_node}"]
    else:
        start = [
            f"torchrun --nnodes={plan.nodes} --nproc-per-node={plan.processes_per_node}",
            f"  --node-rank={rank}",
            f"  --master-addr={master} --master-port={MASTER_PORT}",
        ]
    return [*(f"{line} \\" for line in start), f"  {user_command(plan)}"]


def comment(lines: list[str]) -> list[str]:
    """Lines as comments of shell, YAML or Python."""
    return [f"# {line}" for line in lines]
