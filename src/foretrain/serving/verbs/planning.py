"""What to rent or buy: plan, size, guide, scaling from a few timings, rent or buy."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from foretrain.decoding import part
from foretrain.errors import InvalidRequest
from foretrain.jobs.options import BatchLimits, JobOptions, LengthOptions
from foretrain.planning.options import Limits, OwningOptions
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.serving.requests import request_from
from foretrain.serving.requests.planning import (
    GuideModel,
    GuideRequest,
    PlanRequest,
    RentOrBuyRequest,
    ScalingRequest,
    SizeRequest,
)
from foretrain.workloads.options import TrainingOptions, WorkloadRequest

if TYPE_CHECKING:
    from foretrain.answers import Infeasible
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.guide.guide import Guide
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.planning.size import SizeAnswer
    from foretrain.workloads.readers import ModelSource

from foretrain.progress import Progress, no_progress
from foretrain.serving.verbs.predicting import region_names, topology, with_configuration, workload


def plan(
    request: PlanRequest,
    progress: Progress = no_progress,
    source: ModelSource | None = None,
    with_prediction: bool = False,
) -> Frontier | Infeasible:
    """Find what to rent for a job: every offer that could run it, the Pareto front, and which to take.

    >>> answer = ft.plan("mnist-cnn", samples=60_000, epochs=100, deadline="12h", gpu="t4", cloud="aws")
    >>> answer.meets_limits
    True
    >>> answer.plans[answer.chosen].hardware.device.id
    't4'
    """
    from foretrain.planning.machines import MachinesRequest
    from foretrain.planning.plan import PlanProblem
    from foretrain.planning.plan import plan as core

    options = part(JobOptions, request, region=None)
    progress("reading the model")
    problem = PlanProblem(
        length=part(LengthOptions, request),
        options=options,
        machines=part(
            MachinesRequest, request, region=region_names(request.region), topology=topology(request)
        ),
        batches=part(BatchLimits, request),
        strategies=plan_strategies(request.strategy),
        limits=part(Limits, request),
        input=part(InputOptions, request),
        owning=part(OwningOptions, request),
        layouts=request.layouts,
        with_prediction=with_prediction,
        workload=workload(request, source, batch=None),  # last: reading a model takes longest
    )
    return with_configuration(core(problem, progress), request)


def size(request: SizeRequest, progress: Progress = no_progress) -> SizeAnswer | Infeasible:
    """Find the model size and the number of tokens of the lowest expected loss within money and time.

    >>> answer = ft.size(budget="20usd", deadline="12h", gpu="a10g", cloud="aws", max_gpus=1)
    >>> answer.run.shape.parameters < 1e9 < answer.run.tokens
    True
    """
    from foretrain.planning.machines import MachinesRequest
    from foretrain.planning.size import SizeProblem
    from foretrain.planning.size import size as core

    problem = SizeProblem(
        limits=part(Limits, request),
        training=part(WorkloadRequest, request, model=""),
        machines=part(MachinesRequest, request, region=region_names(request.region)),
        options=part(JobOptions, request, region=None),
        law=request.law,
        params=request.params,
        vocabulary=request.vocabulary,
    )
    return core(problem, progress)


def plan_strategies(names: tuple[str, ...]) -> tuple[str, ...]:
    """Strategies as `plan` compares them."""
    from foretrain.prediction.strategies.strategy import AUTO, plan_word_of, plan_words

    return plan_words() if names == (AUTO,) else tuple(map(plan_word_of, names))


def guide(request: GuideRequest, progress: Progress = no_progress) -> Guide:
    """The buyer's guide: time, cost, memory and bottleneck of networks by hardware by batch size.

    >>> answer = ft.guide("mnist-cnn", on=["t4", "t4:2"], batch=[32, 64])
    >>> [machine.name for machine in answer.machines]
    ['t4', 't4:2']
    """
    from foretrain.planning.guide.cells import default_machines, machines_named
    from foretrain.planning.guide.guide import BATCHES, GuideProblem
    from foretrain.planning.guide.guide import guide as core

    machines = machines_named(request.on, request.counts, request.cloud)
    progress("reading the models")
    chosen = _chosen(request, TrainingOptions)
    workloads = tuple(
        workload(request_from(GuideModel, {**chosen, "model": model}))
        for model in dict.fromkeys(request.models)
    )
    problem = GuideProblem(
        workloads=workloads,
        machines=machines or default_machines(request.cloud),
        batches=request.batch or BATCHES,
        samples=request.samples,
        strategy=request.strategy,
    )
    return core(problem, progress)


def scaling(request: ScalingRequest, progress: Progress = no_progress) -> ScalingAnswer:
    """Predict all configurations of a job from a few timed ones.

    >>> answer = ft.scaling("docs/examples/timings.csv")
    >>> answer.model.form
    'physical'
    """
    from foretrain.learning.scaling.answer import ScalingProblem, predict_scaling
    from foretrain.learning.scaling.configurations import read_configurations, read_timings

    asked = () if request.at is None else read_configurations(request.at)
    problem = ScalingProblem(read_timings(request.timings), asked, request.form, request.cluster)
    if request.workload is not None or request.on is not None:
        problem = _with_prediction(problem, request, progress)
    return predict_scaling(problem)


def _with_prediction(problem: Any, request: ScalingRequest, progress: Progress) -> Any:
    """The same with a prediction from model and hardware as the prior."""
    from foretrain.facts.hardware import Cluster, hardware, with_topology
    from foretrain.learning.scaling.configurations import PredictedScaling

    if request.workload is None or request.on is None:
        raise InvalidRequest("a prediction needs both `workload` and `on`")
    progress(f"predicting {request.workload}")
    machines = with_topology(Cluster(request.on, (hardware(request.on),)), topology(request))
    options = {"model": request.workload, **_chosen(request, ScalingRequest, ("precision",))}
    predicted = PredictedScaling(
        workload(request_from(GuideModel, options)),
        machines.groups[0],
        Parallelism(network=request.network),
    )
    return replace(
        problem,
        predict_at=predicted.seconds,
        prediction_error=predicted.error(problem.timed),
        devices_per_node=predicted.devices_per_node,
    )


def rent_or_buy(request: RentOrBuyRequest) -> RentOrBuy:
    """After how many hours of use does owning a machine win?

    >>> answer = ft.rent_or_buy(price=8000, rent=1.5, relative_performance=0.7)
    >>> round(answer.break_even_hours)
    3733
    """
    from foretrain.planning import rent_or_buy as core

    return core.rent_or_buy(core.terms_of(request))


def _chosen(request: Any, group: type[Any], names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a group that differ from their defaults."""
    return {
        each.name: getattr(request, each.name)
        for each in fields(group)
        if (not names or each.name in names) and getattr(request, each.name) != each.default
    }
