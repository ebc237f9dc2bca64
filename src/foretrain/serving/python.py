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
from foretrain.serving import rendering, verbs
from foretrain.serving.requests import (
    ConvergeRequest,
    GuideRequest,
    LearnRequest,
    PlanRequest,
    PredictRequest,
    RentOrBuyRequest,
    Request,
    RunRequest,
    ScalingRequest,
    ScheduleRequest,
    SimulateRequest,
    TraceRequest,
    request_from,
)

if TYPE_CHECKING:
    import torch

    from foretrain.answers import Infeasible
    from foretrain.backends.answer import RealRun
    from foretrain.convergence.forecast import Convergence
    from foretrain.jobs.predict import JobPrediction
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.guide.guide import Guide
    from foretrain.planning.rent_or_buy import RentOrBuy
    from foretrain.scheduling.accounting import Comparison, Outcome
    from foretrain.scheduling.forecast import Schedule
    from foretrain.serving.keywords import (
        ConvergeRequestKeywords,
        GuideRequestKeywords,
        LearnRequestKeywords,
        PlanRequestKeywords,
        PredictRequestKeywords,
        RentOrBuyRequestKeywords,
        RunRequestKeywords,
        ScalingRequestKeywords,
        ScheduleRequestKeywords,
        SimulateRequestKeywords,
        TraceRequestKeywords,
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
    return verbs.predict(request, source=source)


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
    return verbs.plan(request, source=source)


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
    return verbs.trace(request, source=source)


@_keywords(GuideRequest)
def guide(*models: str | GuideRequest, **options: Unpack[GuideRequestKeywords]) -> Guide:
    """The buyer's guide: time, cost, memory and bottleneck of networks by hardware by batch size.

    >>> answer = ft.guide("mnist-cnn", on=["t4", "t4:2"], batch=[32, 64])
    >>> [machine.name for machine in answer.machines]
    ['t4', 't4:2']
    """
    if len(models) == 1 and isinstance(models[0], GuideRequest):
        return verbs.guide(_request(GuideRequest, models[0], options))
    return verbs.guide(_request(GuideRequest, None, {"models": list(models), **options}))


@_keywords(ConvergeRequest)
def converge(log: str | Path | ConvergeRequest, **options: Unpack[ConvergeRequestKeywords]) -> Convergence:
    """Predict when a training log reaches its target.

    >>> answer = ft.converge(example_log, target="loss=0.4")
    >>> answer.reaches
    True
    """
    return verbs.converge(_request(ConvergeRequest, log, options, "log"))


@_keywords(ScalingRequest)
def scaling(timings: str | Path | ScalingRequest, **options: Unpack[ScalingRequestKeywords]) -> ScalingAnswer:
    """Predict all configurations of a job from a few timed ones.

    >>> answer = ft.scaling(example_timings)
    >>> answer.model.form
    'physical'
    """
    return verbs.scaling(_request(ScalingRequest, timings, options, "timings"))


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
        return verbs.learn(_request(LearnRequest, table, options, "table"))
    return verbs.learn(_request(LearnRequest, None, options), rows=table)


@_keywords(RentOrBuyRequest)
def rent_or_buy(
    request: RentOrBuyRequest | None = None, **options: Unpack[RentOrBuyRequestKeywords]
) -> RentOrBuy:
    """After how many hours of use does owning a machine win?

    >>> answer = ft.rent_or_buy(price=8000, rent=1.5, relative_performance=0.7)
    >>> round(answer.break_even_hours)
    3733
    """
    return verbs.rent_or_buy(_request(RentOrBuyRequest, request, options))


@_keywords(SimulateRequest)
def simulate(
    jobs: str | Path | SimulateRequest | None = None, **options: Unpack[SimulateRequestKeywords]
) -> Outcome | Comparison:
    """Simulate many jobs on a cluster over their whole horizon; several policies are compared.

    >>> answer = ft.simulate(generate="low", nodes=2, seed=1, policy=["fifo", "edf-packed"], bound=False)
    >>> [outcome.policy for outcome in answer.outcomes], answer.best.policy
    (['fifo', 'edf-packed'], 'edf-packed')
    """
    return verbs.simulate(_request(SimulateRequest, jobs, options, "jobs"))


@_keywords(ScheduleRequest)
def schedule(jobs: str | Path | ScheduleRequest, **options: Unpack[ScheduleRequestKeywords]) -> Schedule:
    """Decide once which jobs run where, and predict start, end and cost of all of them.

    >>> answer = ft.schedule(example_jobs, cluster=example_cluster, times=example_times, policy="edf-packed")
    >>> answer.jobs[0].runs
    True
    """
    return verbs.schedule(_request(ScheduleRequest, jobs, options, "jobs"))


@_keywords(RunRequest)
def run(jobs: str | Path | RunRequest, **options: Unpack[RunRequestKeywords]) -> RealRun:
    """Run jobs for real, on this machine, a Ray cluster or a Slurm cluster, until all have ended.

    A schedule of the same `name` is resumed: no job is started twice or lost.
    """
    return verbs.run(_request(RunRequest, jobs, options, "jobs"))


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
