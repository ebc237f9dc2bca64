"""The whole prediction of a training step on given hardware, as `predict` answers it."""

from __future__ import annotations

from dataclasses import replace

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import Hardware
from foretrain.prediction.advice.bottleneck import bottleneck
from foretrain.prediction.advice.speeding_up import Advice, Situation, faster
from foretrain.prediction.answer import (
    Coverage,
    MemoryAnswer,
    MemoryRemedy,
    Prediction,
    StepAnswer,
    memory_parts,
    step_parts,
)
from foretrain.prediction.cost_models.step_models import CostModel, cost_model
from foretrain.prediction.many_devices import Parallelism, predict_parallel, step_context
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.memory.fitting import GraphAt, largest_batch
from foretrain.prediction.memory.fitting import advice as remedies
from foretrain.prediction.memory.lifetimes import MemoryOptions
from foretrain.prediction.operators.catalogue import DEFAULT
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.timing import Timing, throughput, time_step
from foretrain.prediction.strategies.layout import layout_of
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.workload import Workload, graph_at, graph_of


def predict(
    workload: Workload,
    hardware: Hardware,
    parallelism: Parallelism | None = None,
    model: CostModel | str = DEFAULT,
    input_options: InputOptions | None = None,
    with_advice: bool = True,
) -> Prediction:
    """Predict one training step of a workload on hardware.

    `model` tells the time of the step: a name of `operators.catalogue`, or any `CostModel`.
    """
    parallelism, samples = parallelism or Parallelism(), input_options or InputOptions()
    named = cost_model(model, workload)
    if hardware.devices > 1 or not parallelism.is_plain:
        context = step_context(workload, hardware, parallelism, named, samples)
        return predict_parallel(context, parallelism, with_advice)
    if parallelism.strategy != "auto":
        layout_of(parallelism.strategy, 1, 1)  # refuses what makes no sense
    return _on_one_device(workload, hardware, parallelism, named, samples, with_advice)


def _on_one_device(
    workload: Workload,
    hardware: Hardware,
    parallelism: Parallelism,
    model: CostModel,
    samples: InputOptions,
    with_advice: bool,
) -> Prediction:
    batch = workload.sizes.batch
    graph = graph_of(workload) if batch is None else graph_at(workload, batch)
    options = MemoryOptions()
    memory = _memory(workload, graph, hardware, options)
    at = Situation(workload, graph, hardware.device, model, samples, options, memory.largest_batch)
    timing = time_step(graph, hardware.device, model, samples)
    advice: tuple[Advice, ...] = ()
    if with_advice:
        advice = faster(at, timing) if memory.fits else _fitting(memory)
    return Prediction(
        workload=workload,
        hardware=hardware,
        strategy=parallelism.strategy,
        graph=graph,
        batch=graph.batch,
        memory=memory,
        step=_step(timing),
        throughput=throughput(graph, hardware.device, timing.seconds),
        knowledge=timing.computing.knowledge,
        bottleneck=bottleneck(timing, memory.bytes.p50, memory.capacity_bytes, memory.fits, advice),
        coverage=Coverage(timing.computing.modelled_share, timing.computing.unmodelled),
        sources=tuple(dict.fromkeys((*timing.total.sources, memory.source))),
        notes=(f"corrected by {timing.computing.basis}",) if timing.computing.basis else (),
    )


def _step(timing: Timing) -> StepAnswer:
    phases, total = timing.computing.phases, timing.total
    return StepAnswer(
        seconds=total.quantiles,
        forward_seconds=phases[Phase.FORWARD],
        backward_seconds=phases[Phase.BACKWARD],
        optimizer_seconds=phases[Phase.OPTIMIZER],
        input_seconds=timing.input.seconds,
        communication_seconds=0.0,
        exposed_communication_seconds=0.0,
        waiting_for_launches_seconds=timing.computing.waiting_seconds,
        parts=step_parts(total.visible),
        hidden_parts=step_parts(total.hidden),
    )


def _fitting(memory: MemoryAnswer) -> tuple[Advice, ...]:
    """What would make a step fit, as advice."""
    return tuple(
        Advice(remedy.change, None, None, None, remedy.bytes, remedy.fits) for remedy in memory.advice
    )


def _memory(workload: Workload, graph: Graph, hardware: Hardware, options: MemoryOptions) -> MemoryAnswer:
    estimate = estimate_memory(graph, hardware.device, options)
    found = () if estimate.fits else _remedies(workload, graph, hardware, options)
    return MemoryAnswer(
        bytes=estimate.estimate.quantiles,
        capacity_bytes=estimate.capacity_bytes,
        fits=estimate.fits,
        parts=memory_parts(estimate),
        source=", ".join(estimate.estimate.sources),
        largest_batch=largest_batch(lambda batch: graph_at(workload, batch), hardware.device, options),
        advice=found,
    )


def _remedies(
    workload: Workload, graph: Graph, hardware: Hardware, options: MemoryOptions
) -> tuple[MemoryRemedy, ...]:
    found = remedies(
        lambda batch: graph_at(workload, batch),
        graph.batch,
        hardware.device,
        options,
        checkpointed_at=_checkpointed(workload),
    )
    return tuple(MemoryRemedy(item.change, item.memory.bytes, item.fits) for item in found)


def _checkpointed(workload: Workload) -> GraphAt | None:
    """The same workload with activation checkpointing, if it is not on already and the model has blocks."""
    if workload.options.checkpoint_activations or workload.options.forward_only:
        return None
    lean = replace(workload, options=replace(workload.options, checkpoint_activations=True))
    try:
        graph_of(lean)
    except InvalidRequest:
        return None
    return lambda batch: graph_at(lean, batch)
