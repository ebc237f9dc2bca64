"""Memory of a device, simulated for a graph of a family of which nothing but the structure is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from benchmarks.timing import benchmark
from foretrain.facts.devices import device
from foretrain.prediction.memory.allocator import forget_runs
from foretrain.prediction.memory.estimate import estimate_memory, largest_batch
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import Workload, graph_at, workload_of

_SHARDED = MemoryOptions(data_parallel=8, zero_stage=3)


@cache
def _workload(model: str, precision: str) -> Workload:
    return workload_of(WorkloadRequest(model, batch=1, precision=precision))


def _fresh(model: str, batch: int, precision: str) -> Graph:
    return replace(graph_at(_workload(model, precision), batch))


_graphs: list[Graph] = []


def _prepare(model: str, batch: int, precision: str) -> Callable[[], None]:
    def prepare() -> None:
        _graphs[:] = [_fresh(model, batch, precision)]
        forget_runs()

    return prepare


@benchmark("memory of resnet50", target_seconds=0.005, prepare=_prepare("resnet50", 192, "fp16"))
def resnet50() -> None:
    """Six thousand events."""
    estimate_memory(_graphs[0], device("rtx3090"))


@benchmark("memory of llama3-8b, ZeRO-3", target_seconds=0.025, prepare=_prepare("llama3-8b", 1, "bf16"))
def llama3_8b() -> None:
    """Thirty thousand events, and those of the streams of exchanges."""
    estimate_memory(_graphs[0], device("h100-sxm"), _SHARDED)


@benchmark("largest batch of resnet50", target_seconds=0.03, prepare=forget_runs)
def largest_batch_of_resnet50() -> None:
    """Bounds for most batches, simulations near the limit."""
    largest_batch(lambda size: _fresh("resnet50", size, "fp16"), device("rtx3090"), start=192)
