"""A whole step of one device: what it computes, and the input it waits for.

step = max(computing, input)    where loading overlaps training
step = computing + input        where it does not
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.estimates import Estimate, longest, sequence
from foretrain.facts.devices import Device
from foretrain.prediction.cost_models.priced_step import StepEstimate
from foretrain.prediction.cost_models.step_models import CostModel
from foretrain.prediction.operators.pricing import peak_flop_per_second
from foretrain.prediction.step.input_pipeline import InputOptions, InputPipeline, input_pipeline
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.rules import operators

_DTYPES = {
    "fp32": "float32", "tf32": "tf32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn",
}  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """The step of a graph on a device, with its input."""

    computing: StepEstimate
    input: InputPipeline
    total: Estimate

    @property
    def seconds(self) -> float:
        """The median."""
        return self.total.value


@dataclass(frozen=True, slots=True)
class Throughput:
    """What gets done in a second. `tokens_per_second` is None where a model takes no tokens.

    `mfu`, model FLOP utilisation: FLOP of matrix products, convolutions, attention and recurrent layers, none
    of them recomputed, over the device's dense peak for the precision.
    """

    samples_per_second: float
    tokens_per_second: float | None
    mfu: float


def time_step(graph: Graph, device: Device, model: CostModel, options: InputOptions) -> Timing:
    """The time of a step of `graph` on `device`."""
    computing, loading = model.estimate(graph, device), input_pipeline(graph, device, options)
    return Timing(computing, loading, _together(computing.estimate, loading))


def _together(computing: Estimate, loading: InputPipeline) -> Estimate:
    if not loading.estimate.parts:
        return computing
    return (longest if loading.overlaps else _in_turn)(computing, loading.estimate)


def _in_turn(*estimates: Estimate) -> Estimate:
    return sequence(estimates)


def throughput(graph: Graph, device: Device, seconds: float) -> Throughput:
    """The throughput of steps that take so long."""
    return Throughput(
        graph.samples / seconds,
        graph.tokens / seconds if graph.tokens else None,
        model_flop(graph) / seconds / peak(graph, device),
    )


def model_flop(graph: Graph) -> float:
    """FLOP of the model's own work in a step: without what is computed again in the backward pass."""
    done = (op for op in operators(graph) if op.work.kind in MATRIX_KINDS and not op.recomputed)
    return sum(op.work.flop for op in done)


def peak(graph: Graph, device: Device) -> float:
    """The device's dense peak for the precision a graph is trained in."""
    dtype = _DTYPES[str(graph.settings.get("precision", "fp32"))]
    return peak_flop_per_second(device, dtype, matrix=True)
