"""The whole prediction of a training step on given hardware, as `predict` answers it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.prediction.fitting import GraphAt, advice, largest_batch
from foretrain.prediction.memory import MemoryEstimate, estimate_memory
from foretrain.prediction.tenancy import MemoryOptions
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload, graph_at, graph_of

ZERO_STAGES = {"ddp": 0, "dp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}
"""The data-parallel strategies whose memory is known, by the ZeRO stage they amount to."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """One use of memory."""

    name: str
    bytes: float


@dataclass(frozen=True, slots=True)
class MemoryRemedy:
    """A change, what the step would then need, and whether that fits."""

    change: str
    bytes: float
    fits: bool


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """Memory of the fullest device: how much, of what, whether it fits, and what would make it fit."""

    bytes: Quantiles
    capacity_bytes: float
    fits: bool
    parts: tuple[MemoryPart, ...]
    source: str
    largest_batch: int
    advice: tuple[MemoryRemedy, ...]


@dataclass(frozen=True)
class Prediction:
    """What is predicted of a workload on hardware."""

    workload: Workload
    hardware: Hardware
    strategy: str
    graph: Graph
    memory: MemoryAnswer


def predict(workload: Workload, hardware: Hardware, strategy: str = "ddp") -> Prediction:
    """Predict one training step of a workload on hardware."""
    batch = workload.sizes.batch
    graph = graph_of(workload) if batch is None else graph_at(workload, batch)
    return Prediction(
        workload=workload,
        hardware=hardware,
        strategy=strategy,
        graph=graph,
        memory=_memory(workload, graph, hardware, memory_options(strategy, hardware.devices)),
    )


def memory_options(strategy: str, devices: int) -> MemoryOptions:
    """How a strategy over some devices spends memory."""
    if strategy not in ZERO_STAGES:
        raise InvalidRequest(f"strategy {strategy!r} is not one of {', '.join(ZERO_STAGES)}")
    return MemoryOptions(data_parallel=devices, zero_stage=ZERO_STAGES[strategy])


def _memory(workload: Workload, graph: Graph, hardware: Hardware, options: MemoryOptions) -> MemoryAnswer:
    estimate = estimate_memory(graph, hardware.device, options)
    remedies = () if estimate.fits else _remedies(workload, graph, hardware, options)
    return MemoryAnswer(
        bytes=estimate.estimate.quantiles,
        capacity_bytes=estimate.capacity_bytes,
        fits=estimate.fits,
        parts=_parts(estimate),
        source=", ".join(estimate.estimate.sources),
        largest_batch=largest_batch(lambda batch: graph_at(workload, batch), hardware.device, options),
        advice=remedies,
    )


def _parts(estimate: MemoryEstimate) -> tuple[MemoryPart, ...]:
    """Parts of one name together, largest first."""
    by_name: dict[str, float] = {}
    for part in estimate.estimate.visible:
        by_name[part.name] = by_name.get(part.name, 0.0) + part.value
    ordered = sorted(by_name.items(), key=lambda item: -item[1])
    return tuple(MemoryPart(name, size) for name, size in ordered if size > 0)


def _remedies(
    workload: Workload, graph: Graph, hardware: Hardware, options: MemoryOptions
) -> tuple[MemoryRemedy, ...]:
    found = advice(
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
