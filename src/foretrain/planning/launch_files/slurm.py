"""A batch script for Slurm: one task per node, which runs torchrun."""

from __future__ import annotations

import math
import shlex

from foretrain.planning.launch_files._base import (
    LaunchPlan,
    LaunchTarget,
    comment,
    exports,
    heading,
    shell_command,
)
from foretrain.units import MINUTE

_SRUN = 'srun --cpus-per-task="$SLURM_CPUS_ON_NODE"'
"""Without it a task has one core for all processes and data loaders of the node."""


class Slurm(LaunchTarget):
    """`sbatch FILE`."""

    name = "slurm"
    aliases = ("sbatch",)
    suffix = ".sbatch"
    how_to_start = "sbatch {file}"

    def text(self, plan: LaunchPlan) -> str:
        """The script; partition and account depend on the cluster and are left to the user."""
        directives = [
            f"--job-name={plan.name}",
            f"--nodes={plan.nodes}",
            "--ntasks-per-node=1",
            f"--gpus-per-node={plan.devices_per_node}",
            "--exclusive",
            "--output=%x-%j.log",
        ]
        if plan.limit_seconds is not None:
            directives.append(f"--time={math.ceil(plan.limit_seconds / MINUTE)}")
        lines = [
            "#!/usr/bin/env bash",
            *(f"#SBATCH {directive}" for directive in directives),
            *comment(heading(plan, self.how_to_start.format(file=f"{plan.name}{self.suffix}"))),
            "# Add your cluster's --partition and --account, and --constraint if it has other GPUs too.",
            "set -euo pipefail",
            "",
            *exports(plan),
            "",
        ]
        command = shell_command(plan, '"$SLURM_NODEID"', '"$MASTER_ADDR"')
        if plan.nodes == 1:
            return "\n".join([*lines, f"{_SRUN} {command[0]}", *command[1:]]) + "\n"
        lines += [
            "# The first node of the allocation is where the processes meet (head would break the pipe).",
            'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed -n 1p)',
            "export MASTER_ADDR",
            "# Each task reads its own SLURM_NODEID, hence the inner shell.",
            f"{_SRUN} bash -c {shlex.quote(_one_line(command))}",
        ]
        return "\n".join(lines) + "\n"


def _one_line(command: list[str]) -> str:
    return " ".join(line.removesuffix("\\").strip() for line in command)
