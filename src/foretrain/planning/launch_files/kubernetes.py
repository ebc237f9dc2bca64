"""A `TrainJob` of Kubeflow Trainer, which starts one pod per node with the environment torchrun reads.

Fields as in the `TrainJob` of Kubeflow Trainer 2.2 (`trainer.kubeflow.org/v1alpha1`), on the runtime
`torch-distributed` that its installation brings. The controller sets torchrun's PET_ variables (nodes,
processes of a node, rank and address), so the command repeats none of them.
"""

from __future__ import annotations

import json
import math

from foretrain.planning.launch_files._base import (
    LaunchPlan,
    LaunchTarget,
    comment,
    environment,
    heading,
)
from foretrain.prediction.strategies.strategy import is_single_process

RUNTIME = "torch-distributed"
LONGEST_NAME = 45
"""The names of pods have 63 characters at most, and add job, node and a suffix to this one."""


class Kubernetes(LaunchTarget):
    """`kubectl create -f FILE`."""

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
