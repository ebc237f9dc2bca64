"""A shell script that runs torchrun on one node, or on each of several."""

from __future__ import annotations

from foretrain.planning.launch_files._base import (
    LaunchPlan,
    LaunchTarget,
    comment,
    exports,
    heading,
    shell_command,
)


class Torchrun(LaunchTarget):
    """`bash FILE` on every node."""

    name = "torchrun"
    suffix = ".sh"
    how_to_start = "bash {file}"

    def text(self, plan: LaunchPlan) -> str:
        """The script; several nodes are numbered by NODE_RANK and meet at MASTER_ADDR."""
        lines = [
            "#!/usr/bin/env bash",
            *comment(heading(plan, self.how_to_start.format(file=f"{plan.name}{self.suffix}"))),
            "set -euo pipefail",
            "",
            *exports(plan),
            "",
        ]
        if plan.nodes > 1:
            lines += [
                f"# Run it on each of the {plan.nodes} nodes, with NODE_RANK=0 to {plan.nodes - 1}",
                "# and MASTER_ADDR the address of node 0.",
                f': "${{NODE_RANK:?set NODE_RANK to 0 ... {plan.nodes - 1}}}"',
                ': "${MASTER_ADDR:?set MASTER_ADDR to the address of node 0}"',
            ]
        lines += shell_command(plan, '"$NODE_RANK"', '"$MASTER_ADDR"')
        return "\n".join(lines) + "\n"
