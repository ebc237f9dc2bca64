"""Which batch sizes may be chosen: the limits of the request, and the sizes to compare within them.

Memory of one device at many batch sizes and degrees of sharding, from a few simulations.

What the allocator reserves depends on the device only through the cuBLAS workspace and the framework context,
so each batch is simulated once. Of powers of two every other one is simulated; the others are interpolated.
What sharding saves hardly depends on the batch and follows a + b / n in the number of devices n: two
simulations of a stage at the smallest batch give both coefficients. One device has no buckets; micro-batches
keep their gradients.

Validity: near the limit of a device, ZeRO was 10 % below to 15 % above `memory.estimate_memory` for
ResNet-50, BERT-large, ViT-L and GPT-2, and 26 % below to 17 % above it for GPT-2 XL; without sharding 3 %
below to 15 % above. Estimates within a factor 1.5 of the capacity are therefore replaced by
`estimate_memory` (`jobs.configurations`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.facts.running import LARGEST_BATCH, LARGEST_BATCH_TOKENS, default
from foretrain.prediction.memory.estimate import context_bytes, estimate_memory, memory_calibration
from foretrain.prediction.memory.lifetimes import first_products
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.graph import Graph, Role
from foretrain.workloads.workload import BATCHES, Workload, graph_at


def small_step(workload: Workload) -> Graph:
    """The recorded step of few samples, or of one sample where more cannot be recorded."""
    try:
        return graph_at(workload, BATCHES[0])
    except InvalidRequest:
        return graph_at(workload, 1)


def smallest_batch(graph: Callable[[int], Graph]) -> int:
    """1, or 2 where one sample cannot be trained: batch normalisation of a single value per channel."""
    try:
        graph(1)
    except InvalidRequest as alone:
        try:
            graph(BATCHES[0])
        except InvalidRequest:
            raise alone from None
        return BATCHES[0]
    return 1


def largest_batch(workload: Workload, epoch_samples: int | None = None) -> int:
    """The largest global batch to compare by default: in samples or tokens, and at most an epoch."""
    graph = small_step(workload)
    if graph.tokens:
        tried = max(1, int(default(LARGEST_BATCH_TOKENS).quantiles.p50 * graph.samples // graph.tokens))
    else:
        tried = int(default(LARGEST_BATCH).quantiles.p50)
    return tried if epoch_samples is None else min(tried, epoch_samples)


def tokens_per_sample(workload: Workload) -> float | None:
    """Tokens of a sample; None for models without tokens."""
    graph = small_step(workload)
    return graph.tokens / graph.samples if graph.tokens else None


_FEW, _MANY = 2, 64
"""Memory by the number of devices is simulated at these two. What sharding saves is linear in 1/devices."""


class DeviceMemory:
    """Memory of batches of one workload on any device; each simulation runs once."""

    def __init__(self, graph_at: Callable[[int], Graph], reference: Device, smallest: int) -> None:
        self._graph_at = graph_at
        self.reference = reference
        self.smallest = smallest
        self._reserved = cache(self._simulated)
        self._contexts: dict[str, float] = {}
        graph = graph_at(smallest)
        self._handles = len(first_products(graph))
        self._gradients = sum(
            graph.buffer_bytes(index)
            for index, buffer in enumerate(graph.buffers)
            if buffer.role is Role.GRADIENT
        )

    def bytes(self, batch: int, zero_stage: int, devices: int, accumulates: bool, on: Device) -> float:
        """Memory of a micro-batch on one of `devices` devices; `accumulates` keeps gradients between them."""
        needed = self._plain(batch) - (self._gradients if devices == 1 else 0)
        if zero_stage and devices > 1:
            needed -= self._saved(zero_stage, devices)
        if accumulates:
            needed += self._gradients / (devices if zero_stage > 1 else 1)
        known = memory_calibration()
        workspace = known.cublas_workspace_bytes(on.generation)
        workspace -= known.cublas_workspace_bytes(self.reference.generation)
        return needed + self._handles * workspace + self._context(on)

    def _plain(self, batch: int) -> float:
        """Memory of a batch without sharding; of powers of two every other one is simulated."""
        times = batch // self.smallest
        is_between = batch == times * self.smallest and times.bit_count() == 1 and times.bit_length() % 2 == 0
        if not is_between:
            return self._reserved(batch, 0, _FEW)
        half, twice = self._reserved(batch // 2, 0, _FEW), self._reserved(2 * batch, 0, _FEW)
        return half + (twice - half) / 3  # b lies a third of the way from b / 2 to 2 b

    def _saved(self, zero_stage: int, devices: int) -> float:
        """What sharding saves, interpolated between few and many devices."""
        few, many = (self._reserved(self.smallest, zero_stage, count) for count in (_FEW, _MANY))
        per_share = (few - many) / (1 / _FEW - 1 / _MANY)
        return self._reserved(self.smallest, 0, _FEW) - many - per_share * (1 / devices - 1 / _MANY)

    def _context(self, on: Device) -> float:
        if on.id not in self._contexts:
            graph = self._graph_at(self.smallest)
            self._contexts[on.id] = context_bytes(graph, on, memory_calibration())
        return self._contexts[on.id]

    def _simulated(self, batch: int, zero_stage: int, devices: int) -> float:
        options = MemoryOptions(data_parallel=devices, zero_stage=zero_stage)
        estimate = estimate_memory(self._graph_at(batch), self.reference, options)
        return estimate.bytes - self._context(self.reference)


def capacity_bytes(on: Device) -> float:
    """The memory of a device that a job can use."""
    return on.memory_bytes * memory_calibration().usable_share
