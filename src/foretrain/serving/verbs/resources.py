"""`resources` and `pair`: from plain requests to answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from foretrain.answers import Infeasible
from foretrain.decoding import part
from foretrain.errors import InvalidRequest
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.progress import Progress, no_progress
from foretrain.serving.requests import request_from
from foretrain.serving.requests.resources import CHANGES, PairRequest, ResourcesRequest
from foretrain.serving.verbs.predicting import topology, workload

if TYPE_CHECKING:
    from foretrain.prediction.resources.consumption import Consumption, ConsumptionAnswer
    from foretrain.prediction.resources.pairing import PairAnswer
    from foretrain.prediction.scenario import Scenario
    from foretrain.workloads.readers import ModelSource


def resources(
    request: ResourcesRequest, progress: Progress = no_progress, source: ModelSource | None = None
) -> ConsumptionAnswer | Infeasible:
    """Bursts and idle gaps of a step: what a worker uses over time, and what changes it.

    >>> answer = ft.resources("mnist-cnn", on="t4", batch=64, method="timeline")
    >>> answer.consumption.method
    'timeline'
    """
    from foretrain.prediction.resources.consumption import ConsumptionAnswer, WhatIf

    changed = [*_changed(request)]
    base = _consumption(request, progress, source)
    if isinstance(base, Infeasible):
        return base
    others = [WhatIf(change, _consumption(each, progress, source)) for change, each in changed]
    return ConsumptionAnswer(base, tuple(others))


def pair(request: PairRequest, progress: Progress = no_progress) -> PairAnswer | Infeasible:
    """Whether two jobs share a device and a link well.

    >>> answer = ft.pair("mnist-cnn", "voice-conv", on="t4")
    >>> len(answer.jobs)
    2
    """
    from foretrain.prediction.predict import pace_of
    from foretrain.prediction.resources.pairing import pair_answer

    if len(request.models) != 2:
        raise InvalidRequest(f"`pair` compares two models, got {len(request.models)}: write A B")
    if len(request.batch) > 2:
        raise InvalidRequest(f"`batch` has {len(request.batch)} numbers; give one for both jobs, or one each")
    batches = (request.batch * 2)[:2] or (None, None)
    shared = {
        each.name: getattr(request, each.name)
        for each in fields(PairRequest)
        if each.name not in ("models", "batch") and getattr(request, each.name) != each.default
    }
    jobs = []
    for model, batch in zip(request.models, batches, strict=True):
        own = {} if batch is None else {"batch": batch}
        single = request_from(ResourcesRequest, {**shared, **own, "model": model})
        progress(f"predicting {model}")
        scenario = _scenario(single)
        pace = pace_of(scenario)
        if isinstance(pace, Infeasible):
            return pace
        jobs.append((scenario, pace))
    return pair_answer(*jobs)


def _consumption(
    request: ResourcesRequest, progress: Progress, source: ModelSource | None
) -> Consumption | Infeasible:
    from foretrain.learning.resources.choice import consumption

    progress(f"predicting {request.model} on {request.on}")
    return consumption(_scenario(request, source), request.method, request.sample_every)


def _scenario(request: ResourcesRequest, source: ModelSource | None = None) -> Scenario:
    from foretrain.facts.hardware import cluster, with_topology
    from foretrain.prediction.scenario import Scenario, refuse_before_reading
    from foretrain.workloads.workload import precision_of

    machines = with_topology(cluster(request.on), topology(request))
    parallelism, loading = part(Parallelism, request), part(InputOptions, request)
    refuse_before_reading(machines, parallelism, precision_of(request))
    return Scenario(workload(request, source), machines, parallelism, input=loading, advice=False)


def _changed(request: ResourcesRequest) -> Iterator[tuple[str, ResourcesRequest]]:
    """The request with each change, one at a time."""
    for text in request.what_if:
        key, equals, values = text.partition("=")
        if key not in CHANGES or not equals or not values:
            raise InvalidRequest(
                f"`what_if` {text!r}: write KEY=VALUE[,VALUE] with one of {', '.join(CHANGES)}"
            )
        separated = [values] if key == "strategy" else values.split(",")
        for value in separated:
            yield f"{key}={value}", _with_change(request, key, value.strip())


def _with_change(request: ResourcesRequest, key: str, value: str) -> ResourcesRequest:
    changes: dict[str, Any] = {key: value}
    if key == "gpu":
        changes = {"on": _with_device(request.on, value)}
    elif key == "workers":
        changes = {"on": _with_workers(request.on, value)}
    elif key == "servers":
        changes = {"strategy": _with_servers(request.strategy, value)}
    elif key == "batch" and request.global_batch is not None:
        changes = {"global_batch": value}
    given = {
        each.name: getattr(request, each.name)
        for each in fields(ResourcesRequest)
        if getattr(request, each.name) != each.default
    }
    return replace(request_from(ResourcesRequest, {**given, **changes}), what_if=())


_COUNTS = re.compile(r"(?P<device>[^:]+)(?P<counts>:\d+(?:x\d+)?)?")


def _parts(on: str, what: str) -> tuple[str, str]:
    match = _COUNTS.fullmatch(on)
    if not match:
        raise InvalidRequest(f"`what_if` {what}=... changes hardware given as DEVICE[:COUNT], not {on!r}")
    return match["device"], match["counts"] or ""


def _with_device(on: str, device: str) -> str:
    return device + _parts(on, "gpu")[1]


def _with_workers(on: str, workers: str) -> str:
    device, counts = _parts(on, "workers")
    if not workers.isdigit() or int(workers) < 1:
        raise InvalidRequest(f"`what_if` workers={workers}: write a whole number of at least 1")
    per_node, by, _ = counts.removeprefix(":").partition("x")
    if not by:
        return f"{device}:{workers}"
    nodes, left = divmod(int(workers), int(per_node))
    if left or not nodes:
        raise InvalidRequest(f"`what_if` workers={workers} does not fill nodes of {per_node} devices")
    return f"{device}:{per_node}x{nodes}"


def _with_servers(strategy: str, servers: str) -> str:
    if not strategy.startswith("ps-"):
        raise InvalidRequest(
            f"`what_if` servers=... needs a strategy with parameter servers, such as ps-sync, not {strategy}"
        )
    return f"{strategy.partition(',servers=')[0]},servers={servers}"
