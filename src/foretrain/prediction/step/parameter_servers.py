"""A step with parameter servers: workers compute, push gradients and pull parameters.

Servers run on separate nodes behind one network card each or, if all workers share a node, in host memory. A
step is the time between two updates of the parameters, which depends on how many gradients the servers wait
for (`strategies.parameter_server`).
"""

from __future__ import annotations

from dataclasses import replace

from foretrain.estimates import Estimate, Part
from foretrain.prediction.collectives.costs import Collective, CollectiveCost, Group, Verb, price_collective
from foretrain.prediction.cost_models import call_times
from foretrain.prediction.step.parallel import EXPOSED, ParallelStep, StepEnvironment, Traffic, predict_step
from foretrain.prediction.stragglers import WorkerTimes
from foretrain.prediction.strategies.program import Axis, gradients, optimizer_start
from foretrain.prediction.strategies.strategy import Layout, PsUpdate, replication
from foretrain.workloads.executed import ExecutedGraph

NOTE = "assumes that servers update parameters as fast as a worker's device"


def predict_server_step(
    executed: ExecutedGraph, layout: Layout, micro_batches: int, at: StepEnvironment, jitter: float
) -> ParallelStep:
    """The step of workers with parameter servers; `jitter` is the coefficient of variation of their times."""
    assert layout.servers is not None
    graph = executed.graph
    alone = predict_step(executed, Layout(layout.name), micro_batches, at)
    updating = float(call_times(alone.priced).device[optimizer_start(graph) :].sum())
    size = float(sum(gradient.bytes for gradient in gradients(graph)))
    message = _message(size / layout.servers.servers, at)
    worker = WorkerTimes(alone.seconds - updating, jitter)
    update = replication(layout).update(layout, worker, message.seconds, updating)
    assert update is not None, "a strategy with servers defines their update"
    traffic = tuple(_traffic(verb, size, layout, update, message) for verb in (Verb.PUSH, Verb.PULL))
    return _between_updates(alone, layout, update, message, traffic)


def _message(size: float, at: StepEnvironment) -> CollectiveCost:
    """Cost of one message, gradients or parameters, on an idle link."""
    if at.network.inter is None and at.network.intra is None:
        return CollectiveCost(0.0, "none", "none", 1.0, 1.0, "no communication")
    pair = Group(2, 2 if at.network.inter is None else 1)
    return price_collective(Collective(Verb.SEND, size, pair), at.network, at.device)


def _traffic(verb: Verb, size: float, layout: Layout, update: PsUpdate, message: CollectiveCost) -> Traffic:
    count = update.gradients_per_update
    return Traffic(
        name="push gradients" if verb is Verb.PUSH else "pull parameters",
        verb=verb,
        axes=(Axis.DATA,),
        members=layout.data,
        count=count,
        bytes=size * count,
        seconds=update.exchange_seconds / 2,
        algorithm=message.algorithm,
        tier=message.tier,
        p10=message.p10,
        p90=message.p90,
        source=message.source,
    )


def _between_updates(
    alone: ParallelStep,
    layout: Layout,
    update: PsUpdate,
    message: CollectiveCost,
    traffic: tuple[Traffic, ...],
) -> ParallelStep:
    """A worker's step scaled to the time between updates."""
    share, waits = update.waiting_seconds / alone.seconds, update.exchange_seconds
    parts = [part.scale(share) for part in alone.estimate.parts]
    parts.append(Part.within(EXPOSED, waits, message.source, message.p10, message.p90))
    run = replace(
        alone.run,
        seconds=update.seconds_per_update,
        computing_seconds=alone.run.computing_seconds * share,
        waiting_seconds=alone.run.waiting_seconds * share,
        exposed_seconds=waits,
        phases={phase: seconds * share for phase, seconds in alone.run.phases.items()},
    )
    return replace(
        alone,
        layout=layout,
        estimate=Estimate("s", tuple(parts)),
        run=run,
        traffic=traffic,
        notes=(*alone.notes, NOTE),
        staleness=update.expected_staleness,
    )
