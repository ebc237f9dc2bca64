"""Scenarios from short texts, and their predictions."""

from __future__ import annotations

from typing import Any

from foretrain.facts.hardware import Cluster, Hardware, cluster, hardware
from foretrain.prediction.answer import Prediction
from foretrain.prediction.cost_models import CostModel, OperatorCostModel
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.predict import predict
from foretrain.prediction.scenario import Scenario, StepContext, in_usual_precision, step_context
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, workload_of

NO_INPUT = InputOptions()


def workload(model: str, **options: Any) -> Workload:
    """A workload of the zoo with the options of a request, in FP32 unless another precision is given."""
    return workload_of(WorkloadRequest(model, **{"precision": "fp32", **options}))


def scenario(
    of: Workload,
    on: str | Hardware | Cluster,
    cost_model: CostModel | str = DEFAULT,
    input_options: InputOptions = NO_INPUT,
    advice: bool = False,
    **parallelism: Any,
) -> Scenario:
    """A workload on the hardware that a text names, without advice unless it is asked for."""
    if isinstance(on, Hardware):
        on = Cluster(on.name, (on,))
    where = on if isinstance(on, Cluster) else cluster(on)
    return Scenario(of, where, Parallelism(**parallelism), cost_model, input_options, advice)


def predicted(of: Workload, on: str | Hardware | Cluster, *args: Any, **options: Any) -> Prediction:
    """The prediction of a scenario that must be feasible."""
    answer = predict(scenario(of, on, *args, **options))
    assert isinstance(answer, Prediction), str(answer)
    return answer


def context_on(
    of: Workload,
    on: str | Hardware,
    cost_model: CostModel | None = None,
    input_options: InputOptions = NO_INPUT,
    **parallelism: Any,
) -> StepContext:
    """A workload on equal nodes, without corrections by the user's timings."""
    machine = on if isinstance(on, Hardware) else hardware(on)
    model = cost_model or OperatorCostModel()
    of = in_usual_precision(of, (machine.device,))
    return step_context(of, machine, Parallelism(**parallelism), model, input_options)
