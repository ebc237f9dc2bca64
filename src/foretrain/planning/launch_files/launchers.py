"""How a plan is started by each launcher; another one may stand in a file of its own beside this one."""

from __future__ import annotations

import json
import math
import re
import shlex
from string import Template

from foretrain.planning.launch_files._base import (
    MASTER_PORT,
    LaunchPlan,
    LaunchTarget,
    comment,
    environment,
    exports,
    heading,
    shell_command,
)
from foretrain.prediction.strategies.strategy import is_single_process
from foretrain.units import MINUTE


class Torchrun(LaunchTarget):
    """`bash FILE` on every node: torchrun on one node, or on each of several."""

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


_SRUN = 'srun --cpus-per-task="$SLURM_CPUS_ON_NODE"'
"""Without it a task has one core for all processes and data loaders of the node."""


class Slurm(LaunchTarget):
    """`sbatch FILE`: one task per node, which runs torchrun."""

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


_ATTACHED = r"(?P<machine>.+)\+(?P<count>\d+)x(?P<name>.+)"
"""`n1-standard-16+4xT4` (see `facts.providers.HostMachine`): to SkyPilot, a machine and accelerators."""


class SkyPilot(LaunchTarget):
    """`sky launch FILE`: a task for SkyPilot, which rents the machines too.

    Fields as in https://docs.skypilot.co/en/latest/reference/yaml-spec.html; SkyPilot 0.14.1 reads the files.
    """

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


RUNTIME = "torch-distributed"
LONGEST_NAME = 45
"""The names of pods have 63 characters at most, and add job, node and a suffix to this one."""


class Kubernetes(LaunchTarget):
    """`kubectl create -f FILE`: a `TrainJob` of Kubeflow Trainer, one pod per node.

    Fields as in the `TrainJob` of Kubeflow Trainer 2.2 (`trainer.kubeflow.org/v1alpha1`), on the runtime
    `torch-distributed` that its installation brings. The controller sets torchrun's PET_ variables (nodes,
    processes of a node, rank and address), so the command repeats none of them.
    """

    name = "kubernetes"
    aliases = ("k8s", "kubeflow")
    suffix = "-trainjob.yaml"
    how_to_start = "kubectl create -f {file}"

    def text(self, plan: LaunchPlan) -> str:
        """The manifest; the image depends on the user's registry and is left to the user."""
        start = "python" if is_single_process(plan.layout) else "torchrun"
        notes = [
            "Requires Kubeflow Trainer 2.2 or later. Give `image` an image that has PyTorch and the script.",
            *(["Spot nodes: select them in the runtime, or by `runtimePatches`."] if plan.spot else []),
        ]
        lines = [
            *comment(heading(plan, self.how_to_start.format(file=f"{plan.name}{self.suffix}"))),
            *comment(notes),
            "apiVersion: trainer.kubeflow.org/v1alpha1",
            "kind: TrainJob",
            "metadata:",
            f"  name: {json.dumps(plan.name.lower()[:LONGEST_NAME].rstrip('-'))}",
            "spec:",
            "  runtimeRef:",
            f"    name: {RUNTIME}",
        ]
        if plan.limit_seconds is not None:
            lines.append(f"  activeDeadlineSeconds: {math.ceil(plan.limit_seconds)}")
        lines += [
            "  trainer:",
            "    # image: REGISTRY/IMAGE:TAG",
            f"    numNodes: {plan.nodes}",
            f"    numProcPerNode: {plan.processes_per_node}",
            f"    command: {json.dumps([start])}",
            f"    args: {json.dumps([_without_expansion(each) for each in (plan.script, *plan.arguments)])}",
            "    resourcesPerNode:",
            "      limits:",
            f"        {json.dumps(f'{plan.vendor}.com/gpu')}: {plan.devices_per_node}",
            "    env:",
        ]
        for variable in environment(plan):
            lines += [
                f"      # {variable.purpose}",
                f"      - name: {variable.name}",
                f"        value: {json.dumps(_without_expansion(variable.value))}",
            ]
        return "\n".join(lines) + "\n"


def _without_expansion(text: str) -> str:
    """Kubernetes replaces $(NAME) in arguments and values, and $$ by one $."""
    return text.replace("$", "$$")


_RAY_PROGRAM = Template("""\
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
    """`python FILE` on the head of a Ray cluster: one bundle of a placement group per node, torchrun in each.

    It uses torchrun rather than Ray Train so that the script of the user needs no change: Ray Train would
    already have set up the process group that the script sets up itself.
    """

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
        return _RAY_PROGRAM.substitute(
            heading="\n".join(comment(heading(plan, f"{start} (the script on every node at the same path)"))),
            nodes=plan.nodes,
            devices_per_node=plan.devices_per_node,
            environment="\n".join(variables),
            script=repr([plan.script, *plan.arguments]),
            command=_ray_command(plan),
        )


def _ray_command(plan: LaunchPlan) -> str:
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
