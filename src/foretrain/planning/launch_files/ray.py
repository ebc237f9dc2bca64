"""A Python file for a Ray cluster: a placement group with one bundle per node, and torchrun in each.

It uses torchrun rather than Ray Train so that the script of the user needs no change: Ray Train would already
have set up the process group that the script sets up itself.
"""

from __future__ import annotations

from string import Template

from foretrain.planning.launch_files._base import (
    MASTER_PORT,
    LaunchPlan,
    LaunchTarget,
    comment,
    environment,
    heading,
)
from foretrain.prediction.strategies.strategy import is_single_process

_PROGRAM = Template("""\
$heading
import os
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

NODES = $nodes
DEVICES_PER_NODE = $devices_per_node
ENVIRONMENT = {
$environment
}
SCRIPT = $script


def command(rank, master):
$command


@ray.remote
def address():
    return ray.util.get_node_ip_address()


@ray.remote
def run_node(rank, master, folder):
    variables = {**os.environ, **ENVIRONMENT}
    return subprocess.run(command(rank, master), env=variables, cwd=folder).returncode


def main():
    folder = os.getcwd()  # Ray's workers start elsewhere, and the script's path is taken from here
    ray.init(address="auto")
    bundle = {"GPU": DEVICES_PER_NODE, "CPU": DEVICES_PER_NODE}
    group = placement_group([bundle] * NODES, strategy="STRICT_SPREAD")
    ray.get(group.ready())

    def on(rank, devices):
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        return {"num_gpus": devices, "num_cpus": devices, "scheduling_strategy": place}

    master = ray.get(address.options(**on(0, 0)).remote())
    runs = [
        run_node.options(**on(rank, DEVICES_PER_NODE)).remote(rank, master, folder) for rank in range(NODES)
    ]
    sys.exit(max(abs(code) for code in ray.get(runs)))


if __name__ == "__main__":
    main()
""")


class Ray(LaunchTarget):
    """`python FILE` on the head of a Ray cluster."""

    name = "ray"
    suffix = "-ray.py"
    how_to_start = "python {file}"

    def text(self, plan: LaunchPlan) -> str:
        """The program; the script must be at the same path on every node."""
        start = self.how_to_start.format(file=f"{plan.name}{self.suffix}")
        variables = [
            f"    # {variable.purpose}\n    {variable.name!r}: {variable.value!r},"
            for variable in environment(plan)
        ]
        return _PROGRAM.substitute(
            heading="\n".join(comment(heading(plan, f"{start} (the script on every node at the same path)"))),
            nodes=plan.nodes,
            devices_per_node=plan.devices_per_node,
            environment="\n".join(variables),
            script=repr([plan.script, *plan.arguments]),
            command=_command(plan),
        )


def _command(plan: LaunchPlan) -> str:
    if is_single_process(plan.layout):
        return "    return [sys.executable, *SCRIPT]"
    if plan.nodes == 1:
        return (
            f'    return ["torchrun", "--standalone", "--nproc-per-node={plan.processes_per_node}", *SCRIPT]'
        )
    return "\n".join(
        (
            "    return [",
            f'        "torchrun", "--nnodes={plan.nodes}", "--nproc-per-node={plan.processes_per_node}",',
            f'        f"--node-rank={{rank}}", f"--master-addr={{master}}", "--master-port={MASTER_PORT}",',
            "        *SCRIPT,",
            "    ]",
        )
    )
