"""foretrain: know what a training job will take - time, money, memory, machines - before you run it.

    import foretrain as ft
    p = ft.predict("resnet50", on="rtx3090", batch=192, precision="fp16")
    p.step.seconds.p50, p.memory.fits, p.bottleneck.verdict, p.to_dict()

Keywords are the options of the command line. What is exported here is public and stays; all else is free to
change. Names are loaded when first used, so that `import foretrain` stays light.

    predict                     a training step, and the whole job, on given hardware
    fit                         does a training step fit into memory, and what would make it fit?
    plan                        what to rent for a job, among all offers
    trace                       what a training step consists of
    guide                       networks by hardware by batch size
    converge                    when a training log reaches its target
    step, timed_input           in a training script: the end of a step; a data loader whose delays are timed
    learn                       regression on your own timings, with out-of-sample validation
    scaling                     from a few timed configurations of a job to all others
    rent_or_buy                 when does owning a machine pay for itself?
    simulate                    many jobs on a cluster over time, under one policy or several
    schedule                    one decision: which jobs run where now, and when the others will
    run                         the jobs for real, on this machine, Ray or Slurm
    PredictRequest, FitRequest, PlanRequest, TraceRequest, GuideRequest    the requests of these verbs
    ConvergeRequest, ScalingRequest, LearnRequest, RentOrBuyRequest    as plain data
    SimulateRequest, ScheduleRequest, RunRequest               as plain data
    JobPrediction, Prediction   what `predict` answers: a step with its epoch and job; a step
    FitAnswer                   what `fit` answers
    Job, Epoch                  a whole job; one pass over a data set
    Frontier, Plan              what `plan` answers, and one of its plans
    Trace, Guide, Convergence, ScalingAnswer, LearnAnswer, RentOrBuy    what the others answer
    LearnedModel, load_model, price_jobs    what `learn` found: saved, read again, asked for jobs
    Outcome, Comparison         what `simulate` answers: one policy; several side by side
    Schedule, RealRun           what `schedule` and `run` answer
    Answer, Infeasible          base of all answers; the answer "nothing satisfies this"
    Workload, Cluster, Hardware    what is trained; where: groups of equal nodes; equal nodes
    Estimate, Part, Quantiles   a prediction: a sum of parts with an interval
    device, devices             one device by name; all of them, by name and alias
    Device                      a GPU or CPU and its sheet of facts
    search_offers               the cloud offers an `OfferQuery` asks for
    Offer, OfferQuery           a machine with its hourly price; what to look for
    explain                     every fact about a name, with its kind and source
    Explanation                 what `explain` answers
    list_devices, list_offers, list_links, list_models    what is known, with its sources
    DevicesRequest, OffersRequest, LinksRequest, ModelsRequest, ExplainRequest    the requests of these
    DeviceList, OfferList, LinkList, ModelList, ImportReport    what they answer
    list_runs, show_run, compare_runs    stored runs: all that meet conditions, one, several side by side
    export_runs, import_runs, delete_runs    files of runs; runs that are no longer wanted
    validate                    predictions compared with your own stored runs
    ListRunsRequest, ShowRunRequest, CompareRunsRequest, ValidateRequest    the requests of these verbs
    ExportRunsRequest, ImportRunsRequest, DeleteRunsRequest    as plain data
    RunList, RunDetails, RunComparison, RunsExported, RunsImported, RunsDeleted    what they answer
    ValidateAnswer              what `validate` answers
    resources, pair             bursts and idle gaps of a step; would two jobs share a device well?
    measure, campaign, profile    a command, many short trainings, operators and layers: measured
    calibrate, learn_layers, learn_resources    what is learned from timings, a machine, runs, profiles
    list_calibrations, show_calibration, forget_calibration    calibrations: all, one, one no longer wanted
    export_calibration, import_calibration    calibrations of another machine
    ResourcesRequest, PairRequest, MeasureRequest, CampaignRequest, ProfileRequest    the requests of these
    CalibrateRequest, CalibrationRequest, ListCalibrationsRequest    as plain data
    ExportCalibrationRequest, ImportCalibrationRequest    as plain data
    LearnLayersRequest, LearnResourcesRequest    as plain data
    ConsumptionAnswer, PairAnswer, Measured, CampaignTrials, CampaignAnswer, Profile    what they answer
    MachineLearned, GpuLearned, TimingsLearned, RunsLearned, TraceLearned    what `calibrate` answers
    CalibrationList, CalibrationAnswer, LayersAnswer, ResourcesLearned    what the others answer
    TopologyAnswer              what `list_links` answers of a topology file
    speedup_per_fold_of_cost    is the faster machine worth its price?
    TimeAndCost                 what a piece of work takes on one offer
    ForetrainError              base of all errors a user can cause or fix:
    InvalidRequest              the request contradicts itself or makes no sense
    InvalidData                 a file that was handed in is malformed
    UnknownName                 a name that is not known
    MissingData                 a fact or file is absent
    BackendFailed               something outside foretrain failed
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrain.answers import Answer, Infeasible
    from foretrain.backends.answer import RealRun
    from foretrain.convergence.forecast import Convergence
    from foretrain.errors import (
        BackendFailed,
        ForetrainError,
        InvalidData,
        InvalidRequest,
        MissingData,
        UnknownName,
    )
    from foretrain.estimates import Estimate, Part, Quantiles
    from foretrain.facts.devices import Device, device, devices
    from foretrain.facts.explanation import Explanation
    from foretrain.facts.hardware import Cluster, Hardware
    from foretrain.facts.offers import Offer, OfferQuery
    from foretrain.facts.offers import search as search_offers
    from foretrain.facts.price_files import ImportReport
    from foretrain.facts.topology import TopologyAnswer
    from foretrain.jobs.epochs import Epoch
    from foretrain.jobs.job import Job
    from foretrain.jobs.predict import JobPrediction
    from foretrain.learning.regression.cost_model import price_jobs
    from foretrain.learning.regression.layers import LayersAnswer
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.regression.model import LearnedModel
    from foretrain.learning.regression.model import load as load_model
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.measuring.profiling.comparison import Profile
    from foretrain.measuring.watching.step_hook import step, timed_input
    from foretrain.planning.frontier import Frontier, Plan
    from foretrain.planning.guide.guide import Guide
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.planning.speedup import TimeAndCost, speedup_per_fold_of_cost
    from foretrain.prediction.answer import FitAnswer, Prediction
    from foretrain.prediction.resources.consumption import ConsumptionAnswer
    from foretrain.prediction.resources.pairing import PairAnswer
    from foretrain.scheduling.accounting import Comparison, Outcome
    from foretrain.scheduling.forecast import Schedule
    from foretrain.serving.python import (
        calibrate,
        campaign,
        compare_runs,
        converge,
        delete_runs,
        explain,
        export_calibration,
        export_runs,
        fit,
        forget_calibration,
        guide,
        import_calibration,
        import_runs,
        learn,
        learn_layers,
        learn_resources,
        list_calibrations,
        list_devices,
        list_links,
        list_models,
        list_offers,
        list_runs,
        measure,
        pair,
        plan,
        predict,
        profile,
        rent_or_buy,
        resources,
        run,
        scaling,
        schedule,
        show_calibration,
        show_run,
        simulate,
        trace,
        validate,
    )
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
    from foretrain.serving.verbs.calibrating import (
        CalibrationAnswer,
        CalibrationList,
        GpuLearned,
        MachineLearned,
        RunsLearned,
        TimingsLearned,
        TraceLearned,
    )
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
    from foretrain.workloads.summary import Trace
    from foretrain.workloads.workload import Workload

__version__ = "0.1.0"

__all__ = (
    "Answer",
    "BackendFailed",
    "CalibrateRequest",
    "CalibrationAnswer",
    "CalibrationList",
    "CalibrationRequest",
    "CampaignAnswer",
    "CampaignRequest",
    "CampaignTrials",
    "Cluster",
    "CompareRunsRequest",
    "Comparison",
    "ConsumptionAnswer",
    "ConvergeRequest",
    "Convergence",
    "DeleteRunsRequest",
    "Device",
    "DeviceList",
    "DevicesRequest",
    "Epoch",
    "Estimate",
    "ExplainRequest",
    "Explanation",
    "ExportCalibrationRequest",
    "ExportRunsRequest",
    "FitAnswer",
    "FitRequest",
    "ForetrainError",
    "Frontier",
    "GpuLearned",
    "Guide",
    "GuideRequest",
    "Hardware",
    "ImportCalibrationRequest",
    "ImportReport",
    "ImportRunsRequest",
    "Infeasible",
    "InvalidData",
    "InvalidRequest",
    "Job",
    "JobPrediction",
    "LayersAnswer",
    "LearnAnswer",
    "LearnLayersRequest",
    "LearnRequest",
    "LearnResourcesRequest",
    "LearnedModel",
    "LinkList",
    "LinksRequest",
    "ListCalibrationsRequest",
    "ListRunsRequest",
    "MachineLearned",
    "MeasureRequest",
    "Measured",
    "MissingData",
    "ModelList",
    "ModelsRequest",
    "Offer",
    "OfferList",
    "OfferQuery",
    "OffersRequest",
    "Outcome",
    "PairAnswer",
    "PairRequest",
    "Part",
    "Plan",
    "PlanRequest",
    "PredictRequest",
    "Prediction",
    "Profile",
    "ProfileRequest",
    "Quantiles",
    "RealRun",
    "RentOrBuy",
    "RentOrBuyRequest",
    "ResourcesLearned",
    "ResourcesRequest",
    "RunComparison",
    "RunDetails",
    "RunList",
    "RunRequest",
    "RunsDeleted",
    "RunsExported",
    "RunsImported",
    "RunsLearned",
    "ScalingAnswer",
    "ScalingRequest",
    "Schedule",
    "ScheduleRequest",
    "ShowRunRequest",
    "SimulateRequest",
    "TimeAndCost",
    "TimingsLearned",
    "TopologyAnswer",
    "Trace",
    "TraceLearned",
    "TraceRequest",
    "UnknownName",
    "ValidateAnswer",
    "ValidateRequest",
    "Workload",
    "__version__",
    "calibrate",
    "campaign",
    "compare_runs",
    "converge",
    "delete_runs",
    "device",
    "devices",
    "explain",
    "export_calibration",
    "export_runs",
    "fit",
    "forget_calibration",
    "guide",
    "import_calibration",
    "import_runs",
    "learn",
    "learn_layers",
    "learn_resources",
    "list_calibrations",
    "list_devices",
    "list_links",
    "list_models",
    "list_offers",
    "list_runs",
    "load_model",
    "measure",
    "pair",
    "plan",
    "predict",
    "price_jobs",
    "profile",
    "rent_or_buy",
    "resources",
    "run",
    "scaling",
    "schedule",
    "search_offers",
    "show_calibration",
    "show_run",
    "simulate",
    "speedup_per_fold_of_cost",
    "step",
    "timed_input",
    "trace",
    "validate",
)

_HOMES = {
    "predict": "foretrain.serving.python.predict",
    "fit": "foretrain.serving.python.fit",
    "plan": "foretrain.serving.python.plan",
    "trace": "foretrain.serving.python.trace",
    "guide": "foretrain.serving.python.guide",
    "step": "foretrain.measuring.watching.step_hook.step",
    "timed_input": "foretrain.measuring.watching.step_hook.timed_input",
    "converge": "foretrain.serving.python.converge",
    "learn": "foretrain.serving.python.learn",
    "LearnAnswer": "foretrain.learning.regression.learn.LearnAnswer",
    "LearnRequest": "foretrain.serving.requests.learn.LearnRequest",
    "LearnedModel": "foretrain.learning.regression.model.LearnedModel",
    "load_model": "foretrain.learning.regression.model.load",
    "price_jobs": "foretrain.learning.regression.cost_model.price_jobs",
    "scaling": "foretrain.serving.python.scaling",
    "rent_or_buy": "foretrain.serving.python.rent_or_buy",
    "simulate": "foretrain.serving.python.simulate",
    "schedule": "foretrain.serving.python.schedule",
    "run": "foretrain.serving.python.run",
    "SimulateRequest": "foretrain.serving.requests.schedule.SimulateRequest",
    "ScheduleRequest": "foretrain.serving.requests.schedule.ScheduleRequest",
    "RunRequest": "foretrain.serving.requests.schedule.RunRequest",
    "Outcome": "foretrain.scheduling.accounting.Outcome",
    "Comparison": "foretrain.scheduling.accounting.Comparison",
    "Schedule": "foretrain.scheduling.forecast.Schedule",
    "RealRun": "foretrain.backends.answer.RealRun",
    "PredictRequest": "foretrain.serving.requests.predict.PredictRequest",
    "FitRequest": "foretrain.serving.requests.predict.FitRequest",
    "PlanRequest": "foretrain.serving.requests.plan.PlanRequest",
    "TraceRequest": "foretrain.serving.requests.predict.TraceRequest",
    "GuideRequest": "foretrain.serving.requests.plan.GuideRequest",
    "ConvergeRequest": "foretrain.serving.requests.learn.ConvergeRequest",
    "ScalingRequest": "foretrain.serving.requests.plan.ScalingRequest",
    "RentOrBuyRequest": "foretrain.serving.requests.plan.RentOrBuyRequest",
    "JobPrediction": "foretrain.jobs.predict.JobPrediction",
    "FitAnswer": "foretrain.prediction.answer.FitAnswer",
    "Prediction": "foretrain.prediction.answer.Prediction",
    "Frontier": "foretrain.planning.frontier.Frontier",
    "Plan": "foretrain.planning.frontier.Plan",
    "Trace": "foretrain.workloads.summary.Trace",
    "Guide": "foretrain.planning.guide.guide.Guide",
    "Convergence": "foretrain.convergence.forecast.Convergence",
    "ScalingAnswer": "foretrain.learning.scaling.answer.ScalingAnswer",
    "RentOrBuy": "foretrain.planning.rent_or_buy.RentOrBuy",
    "Answer": "foretrain.answers.Answer",
    "Infeasible": "foretrain.answers.Infeasible",
    "Job": "foretrain.jobs.job.Job",
    "Epoch": "foretrain.jobs.epochs.Epoch",
    "Workload": "foretrain.workloads.workload.Workload",
    "Cluster": "foretrain.facts.hardware.Cluster",
    "Hardware": "foretrain.facts.hardware.Hardware",
    "Estimate": "foretrain.estimates.Estimate",
    "Part": "foretrain.estimates.Part",
    "Quantiles": "foretrain.estimates.Quantiles",
    "device": "foretrain.facts.devices.device",
    "devices": "foretrain.facts.devices.devices",
    "Device": "foretrain.facts.devices.Device",
    "search_offers": "foretrain.facts.offers.search",
    "Offer": "foretrain.facts.offers.Offer",
    "OfferQuery": "foretrain.facts.offers.OfferQuery",
    "Explanation": "foretrain.facts.explanation.Explanation",
    "speedup_per_fold_of_cost": "foretrain.planning.speedup.speedup_per_fold_of_cost",
    "TimeAndCost": "foretrain.planning.speedup.TimeAndCost",
    "list_devices": "foretrain.serving.python.list_devices",
    "list_offers": "foretrain.serving.python.list_offers",
    "list_links": "foretrain.serving.python.list_links",
    "list_models": "foretrain.serving.python.list_models",
    "explain": "foretrain.serving.python.explain",
    "DevicesRequest": "foretrain.serving.requests.facts.DevicesRequest",
    "OffersRequest": "foretrain.serving.requests.facts.OffersRequest",
    "LinksRequest": "foretrain.serving.requests.facts.LinksRequest",
    "ModelsRequest": "foretrain.serving.requests.facts.ModelsRequest",
    "ExplainRequest": "foretrain.serving.requests.facts.ExplainRequest",
    "DeviceList": "foretrain.serving.verbs.listing.DeviceList",
    "OfferList": "foretrain.serving.verbs.listing.OfferList",
    "LinkList": "foretrain.serving.verbs.listing.LinkList",
    "ModelList": "foretrain.serving.verbs.listing.ModelList",
    "ImportReport": "foretrain.facts.price_files.ImportReport",
    "list_runs": "foretrain.serving.python.list_runs",
    "show_run": "foretrain.serving.python.show_run",
    "compare_runs": "foretrain.serving.python.compare_runs",
    "export_runs": "foretrain.serving.python.export_runs",
    "import_runs": "foretrain.serving.python.import_runs",
    "delete_runs": "foretrain.serving.python.delete_runs",
    "validate": "foretrain.serving.python.validate",
    "ListRunsRequest": "foretrain.serving.requests.runs.ListRunsRequest",
    "ShowRunRequest": "foretrain.serving.requests.runs.ShowRunRequest",
    "CompareRunsRequest": "foretrain.serving.requests.runs.CompareRunsRequest",
    "ExportRunsRequest": "foretrain.serving.requests.runs.ExportRunsRequest",
    "ImportRunsRequest": "foretrain.serving.requests.runs.ImportRunsRequest",
    "DeleteRunsRequest": "foretrain.serving.requests.runs.DeleteRunsRequest",
    "ValidateRequest": "foretrain.serving.requests.runs.ValidateRequest",
    "RunList": "foretrain.serving.verbs.stored_runs.RunList",
    "RunDetails": "foretrain.serving.verbs.stored_runs.RunDetails",
    "RunComparison": "foretrain.serving.verbs.stored_runs.RunComparison",
    "RunsExported": "foretrain.serving.verbs.stored_runs.RunsExported",
    "RunsImported": "foretrain.serving.verbs.stored_runs.RunsImported",
    "RunsDeleted": "foretrain.serving.verbs.stored_runs.RunsDeleted",
    "ValidateAnswer": "foretrain.serving.verbs.stored_runs.ValidateAnswer",
    "resources": "foretrain.serving.python.resources",
    "pair": "foretrain.serving.python.pair",
    "measure": "foretrain.serving.python.measure",
    "campaign": "foretrain.serving.python.campaign",
    "profile": "foretrain.serving.python.profile",
    "calibrate": "foretrain.serving.python.calibrate",
    "list_calibrations": "foretrain.serving.python.list_calibrations",
    "show_calibration": "foretrain.serving.python.show_calibration",
    "forget_calibration": "foretrain.serving.python.forget_calibration",
    "export_calibration": "foretrain.serving.python.export_calibration",
    "import_calibration": "foretrain.serving.python.import_calibration",
    "learn_layers": "foretrain.serving.python.learn_layers",
    "learn_resources": "foretrain.serving.python.learn_resources",
    "ResourcesRequest": "foretrain.serving.requests.resources.ResourcesRequest",
    "PairRequest": "foretrain.serving.requests.resources.PairRequest",
    "MeasureRequest": "foretrain.serving.requests.measure.MeasureRequest",
    "CampaignRequest": "foretrain.serving.requests.measure.CampaignRequest",
    "ProfileRequest": "foretrain.serving.requests.measure.ProfileRequest",
    "CalibrateRequest": "foretrain.serving.requests.calibrate.CalibrateRequest",
    "CalibrationRequest": "foretrain.serving.requests.calibrate.CalibrationRequest",
    "ListCalibrationsRequest": "foretrain.serving.requests.calibrate.ListCalibrationsRequest",
    "ExportCalibrationRequest": "foretrain.serving.requests.calibrate.ExportCalibrationRequest",
    "ImportCalibrationRequest": "foretrain.serving.requests.calibrate.ImportCalibrationRequest",
    "LearnLayersRequest": "foretrain.serving.requests.learn.LearnLayersRequest",
    "LearnResourcesRequest": "foretrain.serving.requests.learn.LearnResourcesRequest",
    "Measured": "foretrain.serving.verbs.measuring.Measured",
    "CampaignTrials": "foretrain.serving.verbs.measuring.CampaignTrials",
    "CampaignAnswer": "foretrain.serving.verbs.measuring.CampaignAnswer",
    "MachineLearned": "foretrain.serving.verbs.calibrating.MachineLearned",
    "GpuLearned": "foretrain.serving.verbs.calibrating.GpuLearned",
    "TimingsLearned": "foretrain.serving.verbs.calibrating.TimingsLearned",
    "RunsLearned": "foretrain.serving.verbs.calibrating.RunsLearned",
    "TraceLearned": "foretrain.serving.verbs.calibrating.TraceLearned",
    "CalibrationList": "foretrain.serving.verbs.calibrating.CalibrationList",
    "CalibrationAnswer": "foretrain.serving.verbs.calibrating.CalibrationAnswer",
    "ResourcesLearned": "foretrain.serving.verbs.learning.ResourcesLearned",
    "Profile": "foretrain.measuring.profiling.comparison.Profile",
    "LayersAnswer": "foretrain.learning.regression.layers.LayersAnswer",
    "ConsumptionAnswer": "foretrain.prediction.resources.consumption.ConsumptionAnswer",
    "PairAnswer": "foretrain.prediction.resources.pairing.PairAnswer",
    "TopologyAnswer": "foretrain.facts.topology.TopologyAnswer",
    "ForetrainError": "foretrain.errors.ForetrainError",
    "InvalidRequest": "foretrain.errors.InvalidRequest",
    "InvalidData": "foretrain.errors.InvalidData",
    "UnknownName": "foretrain.errors.UnknownName",
    "MissingData": "foretrain.errors.MissingData",
    "BackendFailed": "foretrain.errors.BackendFailed",
}
"""Where each public name lives. The export test keeps this, `__all__` and the docstring the same."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].rpartition(".")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
