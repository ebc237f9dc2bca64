"""What a training job takes before it runs: predict, fit, trace.

Also the nouns of the core that a request describes (`workload`, `scenario`, `cost_model`), for other verbs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from foretrain.decoding import part
from foretrain.errors import InvalidRequest
from foretrain.jobs.options import JobOptions, LengthOptions
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.progress import Progress, no_progress
from foretrain.workloads.options import WorkloadRequest

if TYPE_CHECKING:
    from foretrain.answers import Infeasible
    from foretrain.facts.topology import Topology
    from foretrain.jobs.predict import JobPrediction
    from foretrain.prediction.answer import FitAnswer
    from foretrain.prediction.cost_models import CostModel
    from foretrain.prediction.options import TopologyOption
    from foretrain.prediction.scenario import Scenario
    from foretrain.serving.requests import Request
    from foretrain.serving.requests.listing import LinksRequest
    from foretrain.serving.requests.planning import PlanRequest, ScalingRequest
    from foretrain.serving.requests.predicting import FitRequest, PredictRequest, TraceRequest
    from foretrain.serving.requests.scheduling import PredictedJob
    from foretrain.workloads.options import ModelOption
    from foretrain.workloads.readers import ModelSource
    from foretrain.workloads.summary import Trace
    from foretrain.workloads.workload import Workload

A = TypeVar("A")


def trace(
    request: TraceRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> Trace:
    """See what a training step consists of: parameters, FLOP, bytes, layers.

    >>> ft.trace("voice-conv", batch=2).step.parameters
    376200
    """
    from foretrain.workloads.summary import Trace, summarise
    from foretrain.workloads.workload import graph_of

    progress("reading the model")
    trained = workload(request, source)
    progress("recording the step")
    return Trace(trained, summarise(graph_of(trained)), request.layers)


def predict(
    request: PredictRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> JobPrediction | Infeasible:
    """Predict a training step, and the whole job if its length is given, on given hardware.

    `model` is a name or file as on the command line, or a module; a module needs example `inputs` (a tensor,
    a tuple of them, or a dict) and, unless it returns the loss itself, a `loss` function of its output. It is
    not changed. `on` is hardware: `"h100-sxm:8"`, `"aws:p4d.24xlarge:2"`, `"cluster.yaml"`.

    >>> p = ft.predict("mnist-cnn", on="rtx3090", batch=64, precision="fp16", advice=False)
    >>> p.memory.fits, p.strategy, p.knowledge.value
    (True, 'ddp', 'calibrated')
    >>> p.step.seconds.p10 < p.step.seconds.p50 < p.step.seconds.p90
    True
    >>> job = ft.predict("mnist-cnn", on="t4", batch=64, samples=60_000, epochs=10, advice=False).job
    >>> job.steps
    9380
    """
    from foretrain.jobs.predict import predict_job

    length, running = _job(request)
    asked = scenario(request, progress, source)
    progress("predicting the step")
    return with_configuration(predict_job(asked, length, running), request)


def fit(
    request: FitRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> FitAnswer | Infeasible:
    """Ask whether a training step fits into memory, and what would make it fit.

    >>> answer = ft.fit("mnist-cnn", on="t4", batch=64)
    >>> answer.memory.fits, answer.probability > 0.99
    (True, True)
    """
    from foretrain.facts.hardware import cluster, with_topology
    from foretrain.prediction.predict import fit as core
    from foretrain.prediction.scenario import Scenario, refuse_before_reading
    from foretrain.workloads.workload import precision_of

    machines = with_topology(cluster(request.on), topology(request))
    parallelism = part(Parallelism, request)
    refuse_before_reading(machines, parallelism, precision_of(request))
    progress("reading the model")
    trained = workload(request, source)
    progress("simulating memory")
    asked = Scenario(workload=trained, cluster=machines, parallelism=parallelism)
    return with_configuration(core(asked), request)


def scenario(
    request: PredictRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> Scenario:
    """The training step that a request asks for."""
    from foretrain.facts.hardware import cluster, with_power_limit, with_topology
    from foretrain.prediction.scenario import Scenario, refuse_before_reading
    from foretrain.workloads.workload import precision_of

    joined = with_topology(cluster(request.on), topology(request))
    machines, model = with_power_limit(joined, request.power_limit), cost_model(request)
    parallelism, loading = part(Parallelism, request), part(InputOptions, request)
    refuse_before_reading(machines, parallelism, precision_of(request))
    progress("reading the model")
    return Scenario(workload(request, source), machines, parallelism, model, loading, request.advice)


def with_configuration(answer: A, request: PredictRequest | FitRequest | PlanRequest) -> A:
    """The answer, with notes on what was taken from the training configuration of its request."""
    file = request.from_config
    if file is None or not hasattr(answer, "configuration"):
        return answer
    from foretrain.serving.training_config import report_on

    report = report_on(request, file)
    changed: Any = answer
    return cast(A, replace(changed, notes=(*report.notes(), *changed.notes), configuration=report))


def topology(request: TopologyOption | ScalingRequest | LinksRequest) -> Topology | None:
    """The topology file of a request; with links by name too it raises `InvalidRequest`."""
    if request.topology is None:
        return None
    from foretrain.facts.topology import read_topology

    if getattr(request, "links", None) is not None:
        raise InvalidRequest("`links` and `topology` both say how the devices of a node are joined; give one")
    return read_topology(request.topology)


# ---------------------------------------------------------------- the core's nouns


def workload(request: ModelOption | Request, source: ModelSource | None = None, **other: Any) -> Workload:
    """The workload that a request describes; `source` in place of the model it names."""
    from foretrain.workloads.workload import workload_of

    return workload_of(part(WorkloadRequest, request, **other), source)


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
