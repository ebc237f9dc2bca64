"""foretrain: know what a training job will take - time, money, memory, machines - before you run it.

What is exported here is public and stays; all else is free to change. Names are loaded when first used, so
that `import foretrain` stays light.

    device, devices             one device by name; all of them, by name and alias
    Device                      a GPU or CPU and its sheet of facts
    search_offers               the cloud offers an `OfferQuery` asks for
    Offer, OfferQuery           a machine with its hourly price; what to look for
    workload_of                 what is trained, from a `WorkloadRequest`
    WorkloadRequest             a model's name, batch, precision, optimizer ...
    Workload                    a model with its training step, not yet recorded
    hardware                    where it is trained: `h100-sxm:8x4`, `aws:p4d.24xlarge:2`
    Hardware                    equal nodes of equal devices
    predict                     a training step of a workload on hardware
    Scenario                    a workload on a cluster, and how the step is parallelised
    Parallelism                 strategy, micro-batches, links ... of a scenario
    Prediction                  what `predict` answers
    job_of                      the whole job of so many predicted steps
    Steps, JobOptions, Job         how many steps; how it is run; what `job_of` answers
    converge                    when a training log reaches its target
    LogRequest, Convergence     what `converge` wants to know; what it answers
    plan                        what to rent for a job, among all offers
    PlanRequest, Frontier       what `plan` wants to know; what it answers
    LengthRequest, Limits        how long a job is; what it may take
    MachinesRequest             which machines `plan` considers
    guide                       networks by machines by batch sizes
    GuideRequest, Guide         what `guide` wants to know; what it answers
    rent_or_buy                 when does owning a machine pay for itself?
    RentOrBuyRequest            what `rent_or_buy` wants to know
    RentOrBuy                   what it answers
    speedup_per_fold_of_cost    is the faster machine worth its price?
    TimeAndCost                 what a piece of work takes on one offer
    explain                     every fact about a name, with its kind and source
    Explanation                 what `explain` answers
    Estimate, Part, Quantiles   a prediction: a sum of parts with an interval
    ForetrainError              base of all errors a user can cause or mend:
    InvalidRequest              the request makes no sense
    InvalidData                 a file that was handed in is malformed
    UnknownName                 a name nobody knows
    MissingData                 a fact or file is absent
    BackendFailed               something outside foretrain failed
    Infeasible                  the answer "nothing satisfies this"
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.convergence.from_log import LogRequest, converge
    from foretrain.errors import (
        BackendFailed,
        ForetrainError,
        Infeasible,
        InvalidData,
        InvalidRequest,
        MissingData,
        UnknownName,
    )
    from foretrain.estimates import Estimate, Part, Quantiles
    from foretrain.facts.devices import Device, device, devices
    from foretrain.facts.explanation import Explanation, explain
    from foretrain.facts.hardware import Hardware, hardware
    from foretrain.facts.offers import Offer, OfferQuery
    from foretrain.facts.offers import search as search_offers
    from foretrain.jobs.job import Job, JobOptions, Steps, job_of
    from foretrain.jobs.length import LengthRequest
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.guide.guide import Guide, GuideRequest, guide
    from foretrain.planning.machines import MachinesRequest
    from foretrain.planning.plan import PlanRequest, plan
    from foretrain.planning.rent_or_buy import RentOrBuy, RentOrBuyRequest, rent_or_buy
    from foretrain.planning.selection import Limits
    from foretrain.planning.speedup import TimeAndCost, speedup_per_fold_of_cost
    from foretrain.prediction.answer import Prediction
    from foretrain.prediction.predict import predict
    from foretrain.prediction.scenario import Parallelism, Scenario
    from foretrain.workloads.requests import WorkloadRequest, workload_of
    from foretrain.workloads.workload import Workload

__version__ = "0.1.0"

__all__ = (
    "BackendFailed",
    "Convergence",
    "Device",
    "Estimate",
    "Explanation",
    "ForetrainError",
    "Frontier",
    "Guide",
    "GuideRequest",
    "Hardware",
    "Infeasible",
    "InvalidData",
    "InvalidRequest",
    "Job",
    "JobOptions",
    "LengthRequest",
    "Limits",
    "LogRequest",
    "MachinesRequest",
    "MissingData",
    "Offer",
    "OfferQuery",
    "Parallelism",
    "Part",
    "PlanRequest",
    "Prediction",
    "Quantiles",
    "RentOrBuy",
    "RentOrBuyRequest",
    "Scenario",
    "Steps",
    "TimeAndCost",
    "UnknownName",
    "Workload",
    "WorkloadRequest",
    "__version__",
    "converge",
    "device",
    "devices",
    "explain",
    "guide",
    "hardware",
    "job_of",
    "plan",
    "predict",
    "rent_or_buy",
    "search_offers",
    "speedup_per_fold_of_cost",
    "workload_of",
)

_HOMES = {
    "workload_of": "foretrain.workloads.requests.workload_of",
    "WorkloadRequest": "foretrain.workloads.requests.WorkloadRequest",
    "Workload": "foretrain.workloads.workload.Workload",
    "hardware": "foretrain.facts.hardware.hardware",
    "Hardware": "foretrain.facts.hardware.Hardware",
    "predict": "foretrain.prediction.predict.predict",
    "Parallelism": "foretrain.prediction.scenario.Parallelism",
    "Scenario": "foretrain.prediction.scenario.Scenario",
    "Prediction": "foretrain.prediction.answer.Prediction",
    "job_of": "foretrain.jobs.job.job_of",
    "Steps": "foretrain.jobs.job.Steps",
    "JobOptions": "foretrain.jobs.job.JobOptions",
    "Job": "foretrain.jobs.job.Job",
    "converge": "foretrain.convergence.from_log.converge",
    "LogRequest": "foretrain.convergence.from_log.LogRequest",
    "Convergence": "foretrain.convergence.forecast.Convergence",
    "plan": "foretrain.planning.plan.plan",
    "PlanRequest": "foretrain.planning.plan.PlanRequest",
    "Frontier": "foretrain.planning.frontier.Frontier",
    "LengthRequest": "foretrain.jobs.length.LengthRequest",
    "Limits": "foretrain.planning.selection.Limits",
    "MachinesRequest": "foretrain.planning.machines.MachinesRequest",
    "guide": "foretrain.planning.guide.guide.guide",
    "GuideRequest": "foretrain.planning.guide.guide.GuideRequest",
    "Guide": "foretrain.planning.guide.guide.Guide",
    "device": "foretrain.facts.devices.device",
    "devices": "foretrain.facts.devices.devices",
    "Device": "foretrain.facts.devices.Device",
    "search_offers": "foretrain.facts.offers.search",
    "Offer": "foretrain.facts.offers.Offer",
    "OfferQuery": "foretrain.facts.offers.OfferQuery",
    "rent_or_buy": "foretrain.planning.rent_or_buy.rent_or_buy",
    "RentOrBuyRequest": "foretrain.planning.rent_or_buy.RentOrBuyRequest",
    "RentOrBuy": "foretrain.planning.rent_or_buy.RentOrBuy",
    "speedup_per_fold_of_cost": "foretrain.planning.speedup.speedup_per_fold_of_cost",
    "TimeAndCost": "foretrain.planning.speedup.TimeAndCost",
    "explain": "foretrain.facts.explanation.explain",
    "Explanation": "foretrain.facts.explanation.Explanation",
    "Estimate": "foretrain.estimates.Estimate",
    "Part": "foretrain.estimates.Part",
    "Quantiles": "foretrain.estimates.Quantiles",
    "ForetrainError": "foretrain.errors.ForetrainError",
    "InvalidRequest": "foretrain.errors.InvalidRequest",
    "InvalidData": "foretrain.errors.InvalidData",
    "UnknownName": "foretrain.errors.UnknownName",
    "MissingData": "foretrain.errors.MissingData",
    "BackendFailed": "foretrain.errors.BackendFailed",
    "Infeasible": "foretrain.errors.Infeasible",
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
