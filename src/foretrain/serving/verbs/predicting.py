"""What a training job takes before it runs: predict, plan, trace, guide, scaling, rent or buy.

Also the nouns of the core that a request describes (`workload`, `scenario`, `cost_model`), for other verbs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from foretrain.decoding import part
from foretrain.errors import InvalidRequest
from foretrain.jobs.options import JobOptions, LengthOptions
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.workloads.options import WorkloadRequest

if TYPE_CHECKING:
    from foretrain.answers import Infeasible
    from foretrain.facts.topology import Topology
    from foretrain.jobs.predict import JobPrediction
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.guide.guide import Guide
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.prediction.answer import FitAnswer
    from foretrain.prediction.cost_models import CostModel
    from foretrain.prediction.options import TopologyOption
    from foretrain.prediction.scenario import Scenario
    from foretrain.serving.requests.base import Request
    from foretrain.serving.requests.facts import LinksRequest
    from foretrain.serving.requests.plan import GuideRequest, PlanRequest, RentOrBuyRequest, ScalingRequest
    from foretrain.serving.requests.predict import FitRequest, PredictRequest, TraceRequest
    from foretrain.serving.requests.schedule import PredictedJob
    from foretrain.workloads.options import ModelOption
    from foretrain.workloads.readers import ModelSource
    from foretrain.workloads.summary import Trace
    from foretrain.workloads.workload import Workload

Progress = Callable[[str], None]


def no_progress(_: str) -> None:
    """Report progress to no one."""


def trace(
    request: TraceRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> Trace:
    """What a training step consists of."""
    from foretrain.workloads.summary import Trace, summarise
    from foretrain.workloads.workload import graph_of

    progress("reading the model")
    trained = workload(request, source)
    progress("recording the step")
    return Trace(trained, summarise(graph_of(trained)), request.layers)


def predict(
    request: PredictRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> JobPrediction | Infeasible:
    """What a training step, and the whole job if its length is given, take on given hardware."""
    from foretrain.jobs.predict import predict_job

    length, running = _job(request)
    asked = scenario(request, progress, source)
    progress("predicting the step")
    return predict_job(asked, length, running)


def fit(
    request: FitRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> FitAnswer | Infeasible:
    """Whether a training step fits into memory, and what would make it fit."""
    from foretrain.facts.hardware import cluster, with_topology
    from foretrain.prediction.predict import fit as core
    from foretrain.prediction.scenario import Scenario, refuse_unread_links

    machines = with_topology(cluster(request.on), topology(request))
    parallelism = part(Parallelism, request)
    if machines.is_homogeneous:
        refuse_unread_links(machines.groups[0], parallelism)
    progress("reading the model")
    trained = workload(request, source)
    progress("simulating memory")
    return core(Scenario(workload=trained, cluster=machines, parallelism=parallelism))


def scenario(
    request: PredictRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> Scenario:
    """The training step that a request asks for."""
    from foretrain.facts.hardware import cluster, with_power_limit, with_topology
    from foretrain.prediction.scenario import Scenario

    joined = with_topology(cluster(request.on), topology(request))
    machines, model = with_power_limit(joined, request.power_limit), cost_model(request)
    progress("reading the model")
    return Scenario(
        workload=workload(request, source),
        cluster=machines,
        parallelism=part(Parallelism, request),
        cost_model=model,
        input=part(InputOptions, request),
        advice=request.advice,
    )


def topology(request: TopologyOption | ScalingRequest | LinksRequest) -> Topology | None:
    """The topology file of a request; with links by name too it raises `InvalidRequest`."""
    if request.topology is None:
        return None
    from foretrain.facts.topology import read_topology

    if getattr(request, "links", None) is not None:
        raise InvalidRequest("`links` and `topology` both say how the devices of a node are joined; give one")
    return read_topology(request.topology)


def plan(
    request: PlanRequest,
    progress: Progress = no_progress,
    source: ModelSource | None = None,
    with_prediction: bool = False,
) -> Frontier | Infeasible:
    """Which machines to rent for a job; `with_prediction` adds the prediction of the chosen plan's step."""
    from foretrain.jobs.options import BatchLimits
    from foretrain.planning.machines import MachinesRequest
    from foretrain.planning.options import Limits, OwningOptions
    from foretrain.planning.plan import PlanProblem
    from foretrain.planning.plan import plan as core

    options = part(JobOptions, request, region=None)
    progress("reading the model")
    problem = PlanProblem(
        workload=workload(request, source, batch=None),
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
    )
    return core(problem, progress)


def plan_strategies(names: tuple[str, ...]) -> tuple[str, ...]:
    """Strategies as `plan` compares them."""
    from foretrain.prediction.strategies.strategy import AUTO, plan_word_of, plan_words

    return plan_words() if names == (AUTO,) else tuple(map(plan_word_of, names))


def guide(request: GuideRequest, progress: Progress = no_progress) -> Guide:
    """Networks by hardware by batch size."""
    from foretrain.planning.guide.cells import default_machines, machines_named
    from foretrain.planning.guide.guide import BATCHES, GuideProblem
    from foretrain.planning.guide.guide import guide as core
    from foretrain.serving.requests.given import request_from
    from foretrain.serving.requests.plan import GuideModel
    from foretrain.workloads.options import TrainingOptions

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
    """From a few timed configurations of a job to all the others."""
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
    from foretrain.serving.requests.given import request_from
    from foretrain.serving.requests.plan import GuideModel

    if request.workload is None or request.on is None:
        raise InvalidRequest("a prediction needs both `workload` and `on`")
    progress(f"predicting {request.workload}")
    machines = with_topology(Cluster(request.on, (hardware(request.on),)), topology(request))
    options = {"model": request.workload, **_chosen(request, type(request), ("precision",))}
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
    """After how many hours of use owning a machine wins."""
    from foretrain.planning import rent_or_buy as core

    return core.rent_or_buy(core.terms_of(request))


# ---------------------------------------------------------------- the core's nouns


def workload(request: ModelOption | Request, source: ModelSource | None = None, **other: Any) -> Workload:
    """The workload that a request describes; `source` in place of the model it names."""
    from foretrain.workloads.requests import workload_of

    return workload_of(part(WorkloadRequest, request, **other), source)


def _chosen(request: Any, group: type[Any], names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a group that differ from their defaults."""
    return {
        each.name: getattr(request, each.name)
        for each in fields(group)
        if (not names or each.name in names) and getattr(request, each.name) != each.default
    }


def cost_model(request: PredictRequest | PredictedJob) -> CostModel | str:
    """The cost model by name, or fitted to the user's own timings."""
    from foretrain.prediction.operators.pricing import CHOICES

    name, timings = request.cost_model, request.timings
    if name in CHOICES and timings is None:
        return name
    from foretrain.learning.regression.cost_model import NAME, timed_steps

    if name in CHOICES:
        raise InvalidRequest(f"`timings` is for `cost_model` {NAME}; {name} is not fitted to your timings")
    if name != NAME:
        return _fitted(request, name)
    if timings is None:
        raise InvalidRequest(f"`cost_model` {NAME} is fitted to your own timings: give `timings` FILE")
    return timed_steps(timings, request.model)


def _fitted(request: PredictRequest | PredictedJob, file: str) -> CostModel:
    """The cost model of a saved model, or of a file of timings."""
    from pathlib import Path

    from foretrain.learning.regression.cost_model import NAME, learned_steps
    from foretrain.prediction.operators.pricing import CHOICES

    path = Path(file).expanduser()
    if not path.suffix and not path.exists():
        raise InvalidRequest(
            f"`cost_model` {file!r} is not one of {', '.join((*CHOICES, NAME))}, a FILE of timings "
            "or a model that `learn` saved"
        )
    if request.timings is not None:
        raise InvalidRequest("`cost_model` is a file already; leave out `timings`")
    return learned_steps(path, request.model)


def _job(request: PredictRequest) -> tuple[LengthOptions, JobOptions]:
    """How long the job is, and how it is run; the latter needs the former."""
    length = part(LengthOptions, request)
    running = part(JobOptions, request, region=_one_region(request.region))
    if running != JobOptions() and not length.is_known:
        raise InvalidRequest(
            "how a job is run matters once its length is known: give `steps`, or `epochs` with `samples`, or "
            "`target` with `log`"
        )
    return length, running


def _one_region(text: str | None) -> str | None:
    """A region as its provider spells it, where there is one of that name."""
    names = () if text is None else region_names((text,))
    return names[0] if len(names) == 1 else text


def region_names(given: tuple[str, ...]) -> tuple[str, ...]:
    """The regions of `us-east-1,eu-west-2`, as their providers spell them; unknown ones as they were typed.

    Some contain commas themselves (`Sichuan, CN, AS`), so the longest run of items that is a region is one.
    """
    items = tuple(part.strip() for text in given for part in text.split(",") if part.strip())
    if not items:
        return ()
    from foretrain.facts.offers import all_offers
    from foretrain.registry import normalise

    def key(parts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(normalise, parts))

    known = {
        key(tuple(part.strip() for part in offer.region.split(",") if part.strip())): offer.region
        for offer in all_offers()
    }
    names, start = [], 0
    while start < len(items):
        ends = range(len(items), start, -1)
        end = next((end for end in ends if key(items[start:end]) in known), start + 1)
        names.append(known.get(key(items[start:end]), items[start]))
        start = end
    return tuple(names)
