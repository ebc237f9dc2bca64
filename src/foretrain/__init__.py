"""foretrain: know what a training job will take - time, money, memory, machines - before you run it.

    import foretrain as ft
    p = ft.predict("resnet50", on="rtx3090", batch=192, precision="fp16")
    p.step.seconds.p50, p.memory.fits, p.bottleneck.verdict, p.to_dict()

Every command is a verb here, with its options as keywords: `ft.predict`, `ft.plan`, `ft.rent_or_buy`,
`ft.list_runs` ... `docs/python.md` lists them all, each with its request (`ft.PredictRequest`) and its answer
(`ft.JobPrediction`). `help(ft.plan)` explains a verb. Beside them, these names are public and stay; all else
is free to change. Names are loaded when first used, so that `import foretrain` stays light.

    step, timed_input           in a training script: the end of a step; a data loader whose delays are timed
    LearnedModel, load_model, price_jobs    what `learn` found: saved, read again, asked for jobs
    Prediction, Job, Epoch      a step; a whole job; one pass over a data set
    Plan                        one of the plans that `plan` answers
    Answer                      base of all answers
    Workload, Cluster, Hardware    what is trained; where: groups of equal nodes; equal nodes
    Estimate, Part, Quantiles   a prediction: a sum of parts with an interval
    device, devices             one device by name; all of them, by name and alias
    Device                      a GPU or CPU and its sheet of facts
    search_offers               the cloud offers an `OfferQuery` asks for
    Offer, OfferQuery           a machine with its hourly price; what to look for
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
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "step": "foretrain.measuring.watching.step_hook.step",
    "timed_input": "foretrain.measuring.watching.step_hook.timed_input",
    "LearnedModel": "foretrain.learning.regression.model.LearnedModel",
    "load_model": "foretrain.learning.regression.model.load",
    "price_jobs": "foretrain.learning.regression.cost_model.price_jobs",
    "Prediction": "foretrain.prediction.answer.Prediction",
    "Job": "foretrain.jobs.job.Job",
    "Epoch": "foretrain.jobs.epochs.Epoch",
    "Plan": "foretrain.planning.frontier.Plan",
    "Answer": "foretrain.answers.Answer",
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
    "OfferQuery": "foretrain.facts.options.OfferQuery",
    "speedup_per_fold_of_cost": "foretrain.planning.speedup.speedup_per_fold_of_cost",
    "TimeAndCost": "foretrain.planning.speedup.TimeAndCost",
    "ForetrainError": "foretrain.errors.ForetrainError",
    "InvalidRequest": "foretrain.errors.InvalidRequest",
    "InvalidData": "foretrain.errors.InvalidData",
    "UnknownName": "foretrain.errors.UnknownName",
    "MissingData": "foretrain.errors.MissingData",
    "BackendFailed": "foretrain.errors.BackendFailed",
}
"""Where public names live that are neither a verb nor a request or an answer of one."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    from foretrain.serving.table import VERBS, homes

    home = _HOMES.get(name) or homes().get(name)
    if home is not None:
        module, _, attribute = home.rpartition(".")
        value = getattr(import_module(module), attribute)
    elif name in VERBS:
        from foretrain.serving.python import python_verb

        value = python_verb(name)
    elif name == "__all__":
        value = ("__version__", *VERBS, *homes(), *_HOMES)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
