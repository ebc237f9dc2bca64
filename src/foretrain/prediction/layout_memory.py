"""Memory of the fullest device of a spread step."""

from __future__ import annotations

from foretrain.facts.devices import Device
from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.composition import forward_end
from foretrain.prediction.memory import MemoryEstimate, estimate_memory, live_bytes
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.program import Axis, Program
from foretrain.prediction.strategies.single_process import first_device_bytes
from foretrain.prediction.tenancy import MemoryOptions


def layout_memory(
    stages: tuple[Program, ...], in_flight: tuple[float, ...], layout: Layout, device: Device
) -> tuple[int, MemoryEstimate]:
    """The stage whose devices need most, and what they need."""
    options = [memory_options(stage, held, layout) for stage, held in zip(stages, in_flight, strict=True)]
    fullest = 0
    if len(stages) > 1:
        alive = [
            live_bytes(stage.graph, device, chosen) for stage, chosen in zip(stages, options, strict=True)
        ]
        fullest = max(range(len(stages)), key=lambda stage: alive[stage])
    return fullest, estimate_memory(stages[fullest].graph, device, options[fullest])


def memory_options(stage: Program, in_flight: float, layout: Layout) -> MemoryOptions:
    """How a device of a stage spends memory; with several micro-batches, gradients stay between them."""
    sharded = layout.zero_stage > 0
    in_buckets = not sharded and not layout.is_single_process and layout.servers is None
    return MemoryOptions(
        data_parallel=layout.shard if sharded else (layout.data if in_buckets else 1),
        zero_stage=layout.zero_stage,
        keep_gradients=stage.micro_batches > 1,
        in_flight=in_flight,
        gathered_bytes=int(_gathered_bytes(stage, in_flight, layout)),
    )


def _gathered_bytes(stage: Program, in_flight: float, layout: Layout) -> float:
    """What a device keeps of others: outputs of all replicas, or the other parts of what layers gathered."""
    if layout.is_single_process:
        return first_device_bytes(stage.graph, layout.data)
    if not layout.keeps_gathered or layout.tensor == 1:
        return 0.0
    end = forward_end(stage.graph)
    kept = sum(
        exchange.bytes
        for exchange in stage.exchanges
        if exchange.verb is Verb.ALL_GATHER and exchange.axis is Axis.TENSOR and exchange.after < end
    )
    return in_flight * kept * (1 - 1 / layout.tensor)
