"""What exchanges allocate lives on streams of their own and does not fragment the memory of computing."""

from __future__ import annotations

from foretrain.facts.devices import device
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_at, workload_of


def test_gathered_blocks_leave_little_fragmentation() -> None:
    """Each gathered block would otherwise be carved up by the activations saved after it is freed."""
    workload = workload_of(WorkloadRequest("gpt2-large", seq_len=512, precision="bf16"))
    memory = estimate_memory(
        graph_at(workload, 4), device("h100-sxm"), MemoryOptions(data_parallel=8, zero_stage=3)
    )
    sizes = {part.name: part.value for part in memory.estimate.parts}
    assert sizes["allocator rounding and fragmentation"] < 0.1 * memory.bytes


def test_gathered_blocks_count() -> None:
    workload = workload_of(WorkloadRequest("gpt2-large", seq_len=512, precision="bf16"))
    graph = graph_at(workload, 4)
    sharded = estimate_memory(graph, device("h100-sxm"), MemoryOptions(data_parallel=8, zero_stage=3))
    sizes = {part.name: part.value for part in sharded.estimate.parts}
    largest_block = 12 * 1280**2 * 2
    assert sizes["parameters"] + sizes["communication buckets"] >= largest_block
