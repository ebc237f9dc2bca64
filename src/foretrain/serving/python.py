"""The verbs in Python: `import foretrain as ft`.

Keywords are the options of the command line (`--global-batch` is `global_batch`), with the same units
(`deadline="12h"`) and the same checks. An answer's `to_dict()` is what `--json` prints, its `str()` what the
command prints, its `repr()` one line, and notebooks show it as a table. Each verb also takes its request
(`ft.predict(ft.PredictRequest(model="resnet50", on="t4"))`). `Infeasible` is an answer too: the request was
understood, and nothing satisfies it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from foretrain.decoding import Option, options
from foretrain.errors import InvalidRequest
from foretrain.serving import rendering
from foretrain.serving.requests.base import Request
from foretrain.serving.requests.calibrate import (
    CalibrateRequest,
    CalibrationRequest,
    ExportCalibrationRequest,
    ImportCalibrationRequest,
    ListCalibrationsRequest,
)
from foretrain.serving.requests.facts import (
    DevicesRequest,
    ExplainRequest,
    LinksRequest,
    ModelsRequest,
    OffersRequest,
)
from foretrain.serving.requests.given import request_from
from foretrain.serving.requests.learn import (
    ConvergeRequest,
    LearnLayersRequest,
    LearnRequest,
    LearnResourcesRequest,
)
from foretrain.serving.requests.measure import CampaignRequest, MeasureRequest, ProfileRequest
from foretrain.serving.requests.plan import GuideRequest, PlanRequest, RentOrBuyRequest, ScalingRequest
from foretrain.serving.requests.predict import FitRequest, PredictRequest, TraceRequest
from foretrain.serving.requests.resources import PairRequest, ResourcesRequest
from foretrain.serving.requests.runs import (
    CompareRunsRequest,
    DeleteRunsRequest,
    ExportRunsRequest,
    ImportRunsRequest,
    ListRunsRequest,
    ShowRunRequest,
    ValidateRequest,
)
from foretrain.serving.requests.schedule import RunRequest, ScheduleRequest, SimulateRequest
from foretrain.serving.verbs import (
    calibrating,
    consumption,
    learning,
    listing,
    measuring,
    predicting,
    profiling,
    scheduling,
    stored_runs,
)

if TYPE_CHECKING:
    import torch

    from foretrain.answers import Infeasible
    from foretrain.backends.answer import RealRun
    from foretrain.convergence.forecast import Convergence
    from foretrain.facts.explanation import Explanation
    from foretrain.facts.price_files import ImportReport
    from foretrain.facts.topology import TopologyAnswer
    from foretrain.jobs.predict import JobPrediction
    from foretrain.learning.regression.layers import LayersAnswer
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.guide.guide import Guide
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.prediction.answer import FitAnswer
    from foretrain.prediction.resources.consumption import ConsumptionAnswer
    from foretrain.prediction.resources.pairing import PairAnswer
    from foretrain.scheduling.accounting import Comparison, Outcome
    from foretrain.scheduling.forecast import Schedule
    from foretrain.serving.keywords import (
        CalibrateRequestKeywords,
        CalibrationRequestKeywords,
        CampaignRequestKeywords,
        CompareRunsRequestKeywords,
        ConvergeRequestKeywords,
        DeleteRunsRequestKeywords,
        DevicesRequestKeywords,
        ExportCalibrationRequestKeywords,
        ExportRunsRequestKeywords,
        FitRequestKeywords,
        GuideRequestKeywords,
        ImportCalibrationRequestKeywords,
        ImportRunsRequestKeywords,
        LearnLayersRequestKeywords,
        LearnRequestKeywords,
        LearnResourcesRequestKeywords,
        LinksRequestKeywords,
        ListCalibrationsRequestKeywords,
        ListRunsRequestKeywords,
        MeasureRequestKeywords,
        ModelsRequestKeywords,
        OffersRequestKeywords,
        PairRequestKeywords,
        PlanRequestKeywords,
        PredictRequestKeywords,
        ProfileRequestKeywords,
        RentOrBuyRequestKeywords,
        ResourcesRequestKeywords,
        RunRequestKeywords,
        ScalingRequestKeywords,
        ScheduleRequestKeywords,
        ShowRunRequestKeywords,
        SimulateRequestKeywords,
        TraceRequestKeywords,
        ValidateRequestKeywords,
    )
    from foretrain.serving.verbs.calibrating import CalibrateAnswer, CalibrationAnswer, CalibrationList
    from foretrain.serving.verbs.learning import ResourcesLearned
    from foretrain.serving.verbs.listing import DeviceList, LinkList, ModelList, OfferList
    from foretrain.serving.verbs.measuring import CampaignAnswer, CampaignTrials, Measured
    from foretrain.serving.verbs.stored_runs import (
        RunComparison,
        RunDetails,
        RunList,
        RunsDeleted,
        RunsExported,
        RunsImported,
        ValidateAnswer,
    )
    from foretrain.workloads.readers import ModelSource
    from foretrain.workloads.summary import Trace

rendering.register()

R = TypeVar("R", bound=Request)
Verb = TypeVar("Verb", bound=Callable[..., Any])


VERBS: dict[str, type[Request]] = {}
"""The request of each verb, by its name."""


def _keywords(cls: type[Request]) -> Callable[[Verb], Verb]:
    """Show the options of a request as keywords of a verb in `help` and in notebooks.

    Type checkers and editors read the same from `serving.keywords`.
    """

    def decorated(verb: Verb) -> Verb:
        VERBS[verb.__name__] = cls
        signature = inspect.signature(verb)
        kept = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [
            each for each in options(cls) if not each.positional and each.name not in signature.parameters
        ]
        parameters = [
            inspect.Parameter(
                each.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.is_required else each.default,
                annotation=each.python,
            )
            for each in added
        ]
        verb.__signature__ = signature.replace(parameters=[*kept, *parameters])  # type: ignore[attr-defined]
        verb.__doc__ = f"{inspect.cleandoc(verb.__doc__ or '')}\n\nKeywords:\n{_documented(cls, added)}"
        return verb

    return decorated


def _documented(cls: type[Request], added: Sequence[Option]) -> str:
    """A line for each option. What a registry lists is left to the command line, so that none is loaded."""
    looked_up = f"as `foretrain {cls.VERB} --help` lists them."
    texts = {each.name: each.help if isinstance(each.help, str) else looked_up for each in added}
    return "\n".join(
        textwrap.fill(f"{name}: {text}", 100, initial_indent="    ", subsequent_indent="        ")
        for name, text in texts.items()
    )


@_keywords(PredictRequest)
def predict(
    model: str | torch.nn.Module | PredictRequest,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[PredictRequestKeywords],
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
    request, source = _with_source(PredictRequest, model, inputs, loss, options)
    return predicting.predict(request, source=source)


@_keywords(FitRequest)
def fit(
    model: str | torch.nn.Module | FitRequest,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[FitRequestKeywords],
) -> FitAnswer | Infeasible:
    """Ask whether a training step fits into memory, and what would make it fit.

    >>> answer = ft.fit("mnist-cnn", on="t4", batch=64)
    >>> answer.memory.fits, answer.probability > 0.99
    (True, True)
    """
    request, source = _with_source(FitRequest, model, inputs, loss, options)
    return predicting.fit(request, source=source)


@_keywords(PlanRequest)
def plan(
    model: str | torch.nn.Module | PlanRequest,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[PlanRequestKeywords],
) -> Frontier | Infeasible:
    """Find what to rent for a job: every offer that could run it, the Pareto front, and which to take.

    >>> answer = ft.plan("mnist-cnn", samples=60_000, epochs=100, deadline="12h", gpu="t4", cloud="aws")
    >>> answer.meets_limits
    True
    >>> answer.plans[answer.chosen].hardware.device.id
    't4'
    """
    request, source = _with_source(PlanRequest, model, inputs, loss, options)
    return predicting.plan(request, source=source)


@_keywords(TraceRequest)
def trace(
    model: str | torch.nn.Module | TraceRequest,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[TraceRequestKeywords],
) -> Trace:
    """See what a training step consists of: parameters, FLOP, bytes, layers.

    >>> ft.trace("voice-conv", batch=2).step.parameters
    376200
    """
    request, source = _with_source(TraceRequest, model, inputs, loss, options)
    return predicting.trace(request, source=source)


@_keywords(GuideRequest)
def guide(*models: str | GuideRequest, **options: Unpack[GuideRequestKeywords]) -> Guide:
    """The buyer's guide: time, cost, memory and bottleneck of networks by hardware by batch size.

    >>> answer = ft.guide("mnist-cnn", on=["t4", "t4:2"], batch=[32, 64])
    >>> [machine.name for machine in answer.machines]
    ['t4', 't4:2']
    """
    if len(models) == 1 and isinstance(models[0], GuideRequest):
        return predicting.guide(_request(GuideRequest, models[0], options))
    return predicting.guide(_request(GuideRequest, None, {"models": list(models), **options}))


@_keywords(ConvergeRequest)
def converge(log: str | Path | ConvergeRequest, **options: Unpack[ConvergeRequestKeywords]) -> Convergence:
    """Predict when a training log reaches its target.

    >>> answer = ft.converge(example_log, target="loss=0.4")
    >>> answer.reaches
    True
    """
    return learning.converge(_request(ConvergeRequest, log, options, "log"))


@_keywords(ScalingRequest)
def scaling(timings: str | Path | ScalingRequest, **options: Unpack[ScalingRequestKeywords]) -> ScalingAnswer:
    """Predict all configurations of a job from a few timed ones.

    >>> answer = ft.scaling(example_timings)
    >>> answer.model.form
    'physical'
    """
    return predicting.scaling(_request(ScalingRequest, timings, options, "timings"))


@_keywords(LearnRequest)
def learn(
    table: str | Path | Sequence[Mapping[str, Any]] | LearnRequest | None = None,
    **options: Unpack[LearnRequestKeywords],
) -> LearnAnswer:
    """Learn what runs take from a table of timings (a CSV file or rows as dicts), or from stored `runs`.

    >>> rows = [{"batch": batch, "seconds": 0.01 + 0.002 * batch} for batch in (4, 8, 16, 24, 32, 48, 64)]
    >>> answer = ft.learn(rows, target="seconds", technique="linear", split="batch-size")
    >>> answer.model.formula
    'seconds = 0.01 + 0.002 · (batch)'
    >>> round(answer.model.predict([{"batch": 128}])[0].p50, 3)
    0.266
    """
    if table is None or isinstance(table, str | Path | Request):
        return learning.learn(_request(LearnRequest, table, options, "table"))
    return learning.learn(_request(LearnRequest, None, options), rows=table)


@_keywords(RentOrBuyRequest)
def rent_or_buy(
    request: RentOrBuyRequest | None = None, **options: Unpack[RentOrBuyRequestKeywords]
) -> RentOrBuy:
    """After how many hours of use does owning a machine win?

    >>> answer = ft.rent_or_buy(price=8000, rent=1.5, relative_performance=0.7)
    >>> round(answer.break_even_hours)
    3733
    """
    return predicting.rent_or_buy(_request(RentOrBuyRequest, request, options))


@_keywords(SimulateRequest)
def simulate(
    jobs: str | Path | SimulateRequest | None = None, **options: Unpack[SimulateRequestKeywords]
) -> Outcome | Comparison:
    """Simulate many jobs on a cluster over their whole horizon; several policies are compared.

    >>> answer = ft.simulate(generate="low", nodes=2, seed=1, policy=["fifo", "edf-packed"], bound=False)
    >>> [outcome.policy for outcome in answer.outcomes], answer.best.policy
    (['fifo', 'edf-packed'], 'edf-packed')
    """
    return scheduling.simulate(_request(SimulateRequest, jobs, options, "jobs"))


@_keywords(ScheduleRequest)
def schedule(jobs: str | Path | ScheduleRequest, **options: Unpack[ScheduleRequestKeywords]) -> Schedule:
    """Decide once which jobs run where, and predict start, end and cost of all of them.

    >>> answer = ft.schedule(example_jobs, cluster=example_cluster, times=example_times, policy="edf-packed")
    >>> answer.jobs[0].runs
    True
    """
    return scheduling.schedule(_request(ScheduleRequest, jobs, options, "jobs"))


@_keywords(RunRequest)
def run(jobs: str | Path | RunRequest, **options: Unpack[RunRequestKeywords]) -> RealRun:
    """Run jobs for real, on this machine, a Ray cluster or a Slurm cluster, until all have ended.

    A schedule of the same `name` is resumed: no job is started twice or lost.
    """
    return scheduling.run(_request(RunRequest, jobs, options, "jobs"))


@_keywords(DevicesRequest)
def list_devices(
    name: str | DevicesRequest | None = None, **options: Unpack[DevicesRequestKeywords]
) -> DeviceList:
    """What hardware is known: all of it, the variants of a family, or one device in full.

    >>> [device.id for device in ft.list_devices("t4").devices]
    ['t4']
    """
    return listing.devices(_request(DevicesRequest, name, options, "name"))


@_keywords(OffersRequest)
def list_offers(
    request: OffersRequest | None = None, **options: Unpack[OffersRequestKeywords]
) -> OfferList | ImportReport:
    """What machines cost to rent, every price with its date; `refresh` imports a newer price file instead.

    >>> len(ft.list_offers(gpu="t4", cloud="aws", limit=3).offers)
    3
    """
    return listing.offers(_request(OffersRequest, request, options))


@_keywords(LinksRequest)
def list_links(
    request: LinksRequest | None = None, **options: Unpack[LinksRequestKeywords]
) -> LinkList | TopologyAnswer:
    """Links and networks with their rates; with a `topology` file, how the GPUs of that machine are joined.

    >>> {link.kind for link in ft.list_links(kind="nvlink").links}
    {'nvlink'}
    """
    return listing.links(_request(LinksRequest, request, options))


@_keywords(ModelsRequest)
def list_models(request: ModelsRequest | None = None, **options: Unpack[ModelsRequestKeywords]) -> ModelList:
    """The models of the zoo, and what else can be given as a model.

    >>> [model.name for model in ft.list_models(search="mnist").models]
    ['mnist-cnn']
    """
    return listing.models(_request(ModelsRequest, request, options))


def explain(name: str | ExplainRequest) -> Explanation:
    """Every fact about a name (a device, link, node, provider, offer, source), with its kind and source.

    >>> ft.explain("nvlink4").kind
    'link'
    """
    return listing.explain(_request(ExplainRequest, name, {}, "name"))


@_keywords(ListRunsRequest)
def list_runs(request: ListRunsRequest | None = None, **options: Unpack[ListRunsRequestKeywords]) -> RunList:
    """The newest runs of the store, of a model, a device or a campaign."""
    return stored_runs.list_runs(_request(ListRunsRequest, request, options))


@_keywords(ShowRunRequest)
def show_run(id: str | ShowRunRequest, **options: Unpack[ShowRunRequestKeywords]) -> RunDetails:  # noqa: A002 - its name as an option
    """One stored run: steps, resources, prediction beside measurement."""
    return stored_runs.show_run(_request(ShowRunRequest, id, options, "id"))


@_keywords(CompareRunsRequest)
def compare_runs(
    ids: Sequence[str] | CompareRunsRequest, **options: Unpack[CompareRunsRequestKeywords]
) -> RunComparison:
    """Stored runs side by side, with ratios to the first."""
    return stored_runs.compare_runs(_request(CompareRunsRequest, ids, options, "ids"))


@_keywords(ExportRunsRequest)
def export_runs(
    file: str | Path | ExportRunsRequest, **options: Unpack[ExportRunsRequestKeywords]
) -> RunsExported:
    """Write stored runs to a CSV, Parquet or JSON file."""
    return stored_runs.export_runs(_request(ExportRunsRequest, file, options, "file"))


@_keywords(ImportRunsRequest)
def import_runs(
    file: str | Path | ImportRunsRequest, **options: Unpack[ImportRunsRequestKeywords]
) -> RunsImported:
    """Add the runs of a file to the store, all or none of them."""
    return stored_runs.import_runs(_request(ImportRunsRequest, file, options, "file"))


@_keywords(DeleteRunsRequest)
def delete_runs(
    ids: Sequence[str] | DeleteRunsRequest | None = None, **options: Unpack[DeleteRunsRequestKeywords]
) -> RunsDeleted:
    """Delete runs from the store, by their ids or all of a `campaign`, without asking."""
    return stored_runs.delete_runs(_request(DeleteRunsRequest, ids, options, "ids"))


@_keywords(ValidateRequest)
def validate(
    request: ValidateRequest | None = None, **options: Unpack[ValidateRequestKeywords]
) -> ValidateAnswer:
    """Compare stored runs with the predictions made before them and with those of today."""
    return stored_runs.validate(_request(ValidateRequest, request, options))


@_keywords(ResourcesRequest)
def resources(
    model: str | torch.nn.Module | ResourcesRequest,
    *,
    inputs: Any = None,
    loss: Any = None,
    **options: Unpack[ResourcesRequestKeywords],
) -> ConsumptionAnswer | Infeasible:
    """Bursts and idle gaps of a step: what a worker uses over time, and what changes it.

    >>> answer = ft.resources("mnist-cnn", on="t4", batch=64, method="timeline")
    >>> answer.consumption.method
    'timeline'
    """
    request, source = _with_source(ResourcesRequest, model, inputs, loss, options)
    return consumption.resources(request, source=source)


@_keywords(PairRequest)
def pair(*models: str | PairRequest, **options: Unpack[PairRequestKeywords]) -> PairAnswer | Infeasible:
    """Whether two jobs share a device and a link well.

    >>> answer = ft.pair("mnist-cnn", "voice-conv", on="t4")
    >>> len(answer.jobs)
    2
    """
    if len(models) == 1 and isinstance(models[0], PairRequest):
        return consumption.pair(_request(PairRequest, models[0], options))
    return consumption.pair(_request(PairRequest, None, {"models": list(models), **options}))


@_keywords(MeasureRequest)
def measure(command: Sequence[str] | MeasureRequest, **options: Unpack[MeasureRequestKeywords]) -> Measured:
    """Run a training command unchanged, watch its steps and resources, and store the run."""
    return measuring.measure(_request(MeasureRequest, command, options, "command"))


@_keywords(CampaignRequest)
def campaign(
    file: str | Path | CampaignRequest, **options: Unpack[CampaignRequestKeywords]
) -> CampaignTrials | CampaignAnswer:
    """Run the trials of a campaign file that are not stored yet; with `dry_run` list them."""
    return measuring.campaign(_request(CampaignRequest, file, options, "file"))


@_keywords(ProfileRequest)
def profile(model: str | ProfileRequest, **options: Unpack[ProfileRequestKeywords]) -> Profile:
    """Measured times of operators and layers beside the predicted ones, run `here` or read from a `trace`."""
    return profiling.profile(_request(ProfileRequest, model, options, "model"))


@_keywords(CalibrateRequest)
def calibrate(
    timings: str | Path | CalibrateRequest | None = None, **options: Unpack[CalibrateRequestKeywords]
) -> CalibrateAnswer:
    """Learn from your own timings, this machine (`here`), stored `runs` or a profiler's `trace`."""
    return calibrating.calibrate(_request(CalibrateRequest, timings, options, "timings"))


@_keywords(ListCalibrationsRequest)
def list_calibrations(
    request: ListCalibrationsRequest | None = None, **options: Unpack[ListCalibrationsRequestKeywords]
) -> CalibrationList:
    """All calibrations that correct predictions on this machine."""
    return calibrating.list_calibrations(_request(ListCalibrationsRequest, request, options))


@_keywords(CalibrationRequest)
def show_calibration(
    name: str | CalibrationRequest, **options: Unpack[CalibrationRequestKeywords]
) -> CalibrationAnswer:
    """One calibration with what it was fitted on."""
    return calibrating.show_calibration(_request(CalibrationRequest, name, options, "name"))


@_keywords(CalibrationRequest)
def forget_calibration(
    name: str | CalibrationRequest, **options: Unpack[CalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Remove a calibration and its effect on predictions."""
    return calibrating.forget_calibration(_request(CalibrationRequest, name, options, "name"))


@_keywords(ExportCalibrationRequest)
def export_calibration(
    name: str | ExportCalibrationRequest, **options: Unpack[ExportCalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Write a calibration to a portable `file`."""
    return calibrating.export_calibration(_request(ExportCalibrationRequest, name, options, "name"))


@_keywords(ImportCalibrationRequest)
def import_calibration(
    file: str | Path | ImportCalibrationRequest, **options: Unpack[ImportCalibrationRequestKeywords]
) -> CalibrationAnswer:
    """Validate and store a calibration file."""
    return calibrating.import_calibration(_request(ImportCalibrationRequest, file, options, "file"))


@_keywords(LearnLayersRequest)
def learn_layers(
    profiles: Sequence[str] | LearnLayersRequest, **options: Unpack[LearnLayersRequestKeywords]
) -> LayersAnswer:
    """Fit one line per layer type to profiles, and predict other profiles by it."""
    return learning.learn_layers(_request(LearnLayersRequest, profiles, options, "profiles"))


@_keywords(LearnResourcesRequest)
def learn_resources(
    request: LearnResourcesRequest | None = None, **options: Unpack[LearnResourcesRequestKeywords]
) -> ResourcesLearned:
    """Train the Inspector, which predicts bursts and idle gaps, on your own runs."""
    return learning.learn_resources(_request(LearnResourcesRequest, request, options))


def _with_source(
    cls: type[R], model: Any, inputs: Any, loss: Any, options: Mapping[str, Any]
) -> tuple[R, ModelSource | None]:
    """The request, and the source of a module that was handed in.

    `loss` is a function of a module's output; text is the option of that name.
    """
    if isinstance(loss, str):
        options, loss = {**options, "loss": loss}, None
    if isinstance(model, str | Request):
        if inputs is not None or loss is not None:
            raise InvalidRequest("`inputs` and `loss` belong to a module; models by name have their own")
        return _request(cls, model, options, "model"), None
    from foretrain.workloads.readers.python_file import live_module

    source = live_module(model, inputs, loss)
    return _request(cls, source.name, options, "model"), source


def _request(cls: type[R], first: Any, options: Mapping[str, Any], name: str = "") -> R:
    """The request of a verb's arguments: `first` is a request itself, the option `name`, or nothing."""
    if isinstance(first, cls):
        given = {each.name: getattr(first, each.name) for each in fields(cls)}
        return request_from(cls, {**given, **options})
    if isinstance(first, Request):
        raise InvalidRequest(f"{cls.VERB} takes a {cls.__name__}, not a {type(first).__name__}")
    return request_from(cls, {**({} if first is None else {name: first}), **options})
