"""How much longer mixed precision took in the containers of 2020 than it is priced, from Lambda's benchmark.

Operators are priced as in later software, whose convolutions in half precision are faster. ResNet-50 in the
containers of PyTorch 1.4 tells the difference, on GPUs that none of the clusters has.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from foretrain.facts.devices import device
from foretrain.learning.measurements import lambda_graphs, lambda_steps
from foretrain.prediction.cost_models.step_models import OperatorSteps

_SOFTWARE, _TASK, _PRECISION = "1.4", "resnet50", "fp16"


def mixed_precision_factor(data: Path, without: frozenset[str] = frozenset()) -> float:
    """The median of measured over priced, of all GPUs but some."""
    found = []
    for run in lambda_steps.read(data).runs:
        if (run.software, run.task, run.precision) != (_SOFTWARE, _TASK, _PRECISION):
            continue
        if run.device_id in without:
            continue
        target = device(run.device_id)
        step = lambda_graphs.graph(run, target)
        told = float(OperatorSteps().priced(step, target).priced.seconds.sum()) / step.samples
        found.append(run.seconds / told)
    return median(found)
