"""Plans of small models on real offers, for tests."""

from __future__ import annotations

from typing import Any

from foretrain.jobs.options import LengthOptions
from foretrain.planning.frontier import Frontier
from foretrain.planning.machines import MachinesRequest
from foretrain.planning.plan import PlanProblem, plan
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, workload_of

EPOCHS = LengthOptions(epochs=200_000, samples=60_000)
"""Long enough for a small model that starting the machines hardly counts."""
FEW = MachinesRequest(gpu=("t4", "v100", "a10g"), cloud=("aws", "gcp"), max_gpus=16)


def workload(model: str = "mnist-cnn", precision: str | None = "fp32") -> Workload:
    """A model of the zoo, in FP32 unless another precision is given; None is the device default."""
    return workload_of(WorkloadRequest(model, precision=precision))


def request(
    model: str = "mnist-cnn", length: LengthOptions = EPOCHS, machines: MachinesRequest = FEW, **more: Any
) -> PlanProblem:
    """A job on a few kinds of machines of two clouds."""
    return PlanProblem(workload(model), length, machines=machines, **more)


def planned(asked: PlanProblem) -> Frontier:
    """The answer, which must be one."""
    answer = plan(asked)
    assert isinstance(answer, Frontier), str(answer)
    return answer
