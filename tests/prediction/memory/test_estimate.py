"""Memory of a training step, on models small enough to add up by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device, device
from foretrain.facts.sheets import Sheet
from foretrain.prediction.memory import estimate
from foretrain.prediction.memory.allocator import Footprint, Integers, StepEvents, simulate_steps
from foretrain.prediction.memory.estimate import (
    CommunicatorSize,
    ContextSize,
    MemoryCalibration,
    MemoryEstimate,
    MemorySpread,
    estimate_memory,
    fits_memory,
    largest_batch,
    memory_calibration,
)
from foretrain.prediction.memory.lifetimes import MemoryUse, convolution_workspaces, tuned_calls
from foretrain.prediction.strategies.program import MemoryOptions, unit_of
from foretrain.prediction.strategies.sharded import gather_units
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions, WorkloadRequest
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import graph_of, workload_of

MIB = 1 << 20
WIDTH = 1024
SQUARE = WIDTH * WIDTH * 4
"""Bytes of one square FP32 weight: 4 MiB."""


@cache
def mlp(
    batch: int = 8,
    layers: int = 4,
    optimizer: str | None = "adam",
    checkpoint: bool = False,
    precision: str = "fp32",
    forward_only: bool = False,
) -> Graph:
    """Square linear layers without bias, in blocks of two."""
    with torch.device("meta"):
        module = nn.Sequential(*(_block() for _ in range(layers // 2)))
        inputs = torch.zeros(batch, WIDTH)
    options = ResolvedOptions(
        precision=precision, optimizer=optimizer, checkpoint_activations=checkpoint, forward_only=forward_only
    )
    return trace(Example(module, (inputs,), lambda output: output.sum(), samples=batch), options)


def _block() -> nn.Module:
    first, second = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU())


@cache
def convnet(channels_last: bool = False, kernel: int = 3) -> Graph:
    with torch.device("meta"):
        module = nn.Sequential(nn.Conv2d(4, 8, kernel, padding=kernel // 2, bias=False))
        inputs = torch.zeros(2, 4, 16, 16)
    options = ResolvedOptions(optimizer="sgd", channels_last=channels_last)
    return trace(Example(module, (inputs,), lambda output: output.sum(), samples=2), options)


@pytest.fixture
def a100() -> Device:
    return device("a100-sxm-40gb")


@pytest.fixture
def bare() -> MemoryCalibration:
    """No context, no cuBLAS workspace, no spread: the allocator's memory alone."""
    nothing = ContextSize(0.0, 0.0, memory_calibration().context("ampere").kind, "test")
    buffers = CommunicatorSize(0.0, 0.0, 1.0, "test")
    return MemoryCalibration({"any": nothing}, {"any": 0}, 1.0, MemorySpread(1.0, 1.0, "test", 0), buffers)


def part(memory: MemoryEstimate, wanted: MemoryUse) -> float:
    return math.fsum(item.value for item in memory.estimate.parts if item.name == wanted)


def test_parts_sum_to_context_plus_reserved(a100: Device) -> None:
    memory = estimate_memory(mlp(), a100)
    assert memory.bytes == math.fsum(item.value for item in memory.estimate.parts)
    reserved = memory.bytes - part(memory, MemoryUse.CONTEXT)
    assert reserved % (2 * MIB) == 0
    assert reserved >= memory.allocated_bytes


def test_adam_keeps_two_states_a_parameter(a100: Device, bare: MemoryCalibration) -> None:
    memory = estimate_memory(mlp(), a100, calibration=bare)
    steps = 4 * 4  # one FP32 step counter a parameter, on the device where the optimizer keeps it there
    assert part(memory, MemoryUse.PARAMETERS) == 4 * SQUARE
    assert 0 <= part(memory, MemoryUse.OPTIMIZER_STATE) - 2 * 4 * SQUARE <= steps


def test_plain_sgd_by_hand(a100: Device, bare: MemoryCalibration) -> None:
    """Four 4 MiB weights, four 4 MiB gradients, activations of 32 KiB: two large segments, one small."""
    memory = estimate_memory(mlp(batch=8, optimizer="sgd"), a100, calibration=bare)
    assert part(memory, MemoryUse.PARAMETERS) == 4 * SQUARE
    # Five blocks of 4 MiB fit into a segment of 20 MiB: eight weights and gradients need two.
    # Batches and activations are 8 * 1024 * 4 bytes = 32 KiB each: fewer than 64, so one small segment.
    assert memory.bytes == 2 * 20 * MIB + 2 * MIB


def test_mixed_precision_keeps_master_weights_and_casts_them(a100: Device, bare: MemoryCalibration) -> None:
    """With 4,096 samples the peak lies where activations are saved and the casts are still alive."""
    memory = estimate_memory(mlp(4096, optimizer="sgd", precision="bf16"), a100, calibration=bare)
    assert part(memory, MemoryUse.MASTER_WEIGHTS) == 4 * SQUARE
    assert part(memory, MemoryUse.PARAMETERS) == 0
    assert part(memory, MemoryUse.CAST_WEIGHTS) in {SQUARE / 2 * alive for alive in range(1, 5)}


def test_more_samples_never_take_less(a100: Device) -> None:
    sizes = [estimate_memory(mlp(batch), a100).bytes for batch in (1, 16, 256, 4096)]
    assert all(smaller <= larger for smaller, larger in itertools.pairwise(sizes))
    # At 4,096 samples each activation is 16 MiB, and the four saved ones dominate.
    assert sizes[-1] - sizes[0] >= 4 * 16 * MIB


def test_zero_3_over_many_devices_leaves_a_share_and_the_gathered_unit(
    a100: Device, bare: MemoryCalibration
) -> None:
    options = MemoryOptions(zero_stage=3, data_parallel=64, bucket_bytes=1)
    whole = estimate_memory(mlp(layers=16), a100, calibration=bare)
    sharded = estimate_memory(mlp(layers=16), a100, options, bare)
    states = part(sharded, MemoryUse.OPTIMIZER_STATE)
    assert states == pytest.approx(part(whole, MemoryUse.OPTIMIZER_STATE) / 64, rel=0.01)
    # A share of the parameters, and at most two gathered blocks: the one in use and the prefetched one.
    assert part(sharded, MemoryUse.PARAMETERS) <= 16 * SQUARE / 64 + 2 * (2 * SQUARE)
    assert part(sharded, MemoryUse.GRADIENTS) <= 16 * SQUARE / 64 + SQUARE


def test_each_zero_stage_takes_less_than_the_one_before(a100: Device) -> None:
    needs = [
        estimate_memory(mlp(layers=16), a100, MemoryOptions(zero_stage=stage, data_parallel=8)).bytes
        for stage in range(4)
    ]
    assert needs == sorted(needs, reverse=True)
    assert len(set(needs)) == 4


def test_a_forward_pass_alone_has_no_gradients_to_shard(a100: Device, bare: MemoryCalibration) -> None:
    """Weights of 4 MiB in one segment of 20 MiB, activations in a small one; sharded, a block is gathered."""
    assert estimate_memory(mlp(forward_only=True), a100, calibration=bare).bytes == 22 * MIB
    sharded = MemoryOptions(zero_stage=3, data_parallel=4)
    memory = estimate_memory(mlp(forward_only=True), a100, sharded, bare)
    assert part(memory, MemoryUse.GRADIENTS) == part(memory, MemoryUse.BUCKETS) == 0
    assert part(memory, MemoryUse.PARAMETERS) == 4 * SQUARE / 4 + 2 * (2 * SQUARE)


def test_data_parallel_buckets_hold_a_copy_of_the_gradients(a100: Device) -> None:
    memory = estimate_memory(mlp(), a100, MemoryOptions(data_parallel=2))
    assert part(memory, MemoryUse.BUCKETS) == 4 * SQUARE
    assert part(estimate_memory(mlp(), a100), MemoryUse.BUCKETS) == 0


def test_8_bit_state_is_a_byte_an_element_and_a_scale_a_block(a100: Device, bare: MemoryCalibration) -> None:
    memory = estimate_memory(mlp(), a100, MemoryOptions(eight_bit_optimizer=True), bare)
    elements = 2 * 4 * WIDTH * WIDTH
    assert part(memory, MemoryUse.OPTIMIZER_STATE) == pytest.approx(elements + 4 * elements / 256, abs=64)


def test_gradients_kept_in_place_live_through_the_forward_pass(a100: Device, bare: MemoryCalibration) -> None:
    """With many samples the peak is at the start of backward, where freed gradients do not count."""
    freed = estimate_memory(mlp(4096, optimizer="sgd"), a100, calibration=bare)
    kept = estimate_memory(mlp(4096, optimizer="sgd"), a100, MemoryOptions(keep_gradients=True), bare)
    assert kept.allocated_bytes > freed.allocated_bytes


def test_checkpointing_saves_activations(a100: Device, bare: MemoryCalibration) -> None:
    plain = estimate_memory(mlp(4096, layers=16, optimizer="sgd"), a100, calibration=bare)
    recomputed = mlp(4096, layers=16, optimizer="sgd", checkpoint=True)
    assert estimate_memory(recomputed, a100, calibration=bare).bytes < plain.bytes


def test_convolutions_transpose_channels_first_tensors() -> None:
    tensors = 2 * 4 * 16 * 16 * 4 + 2 * 8 * 16 * 16 * 4 + 8 * 4 * 3 * 3 * 4
    forward, backward = convolution_workspaces(convnet()).values()
    assert forward == backward == tensors
    assert convolution_workspaces(convnet(channels_last=True)) == {}
    assert convolution_workspaces(convnet(kernel=1)) == {}
    assert len(tuned_calls(convnet())) == 2


def test_convolutions_load_cudnn(a100: Device) -> None:
    context = memory_calibration().context("ampere")
    assert part(estimate_memory(mlp(), a100), MemoryUse.CONTEXT) == context.bytes
    with_cudnn = part(estimate_memory(convnet(), a100), MemoryUse.CONTEXT)
    assert with_cudnn == context.bytes + context.convolution_bytes


def test_loaders_keep_three_batches_and_their_raw_bytes(a100: Device) -> None:
    # A batch is 16 MiB: two segments of 16; the raw 4 MiB get one of 20, whose rest takes the third batch.
    memory = estimate_memory(mlp(4096), a100, MemoryOptions(prefetching_loaders=1))
    assert part(memory, MemoryUse.INPUTS) == (16 + 16 + 20) * MIB


def test_the_interval_is_the_measured_spread(a100: Device) -> None:
    memory = estimate_memory(mlp(), a100)
    spread = memory_calibration().spread
    quantiles = memory.estimate.quantiles
    assert quantiles.p10 == pytest.approx(memory.bytes * spread.p10)
    assert quantiles.p90 == pytest.approx(memory.bytes * spread.p90)


def test_units_are_repeated_blocks() -> None:
    assert unit_of("layers.3.mlp.up.weight") == "layers.3"
    assert unit_of("embedding.weight") == ""
    gathered = gather_units(mlp())
    assert sorted(unit.unit for unit in gathered) == ["0", "0", "1", "1"]  # forward and backward
    assert all(unit.bytes == 2 * SQUARE for unit in gathered)


def test_the_largest_batch_fits_and_the_next_does_not() -> None:
    small = replace(device("a100-sxm-40gb"), sheet=device("gtx1060-6gb").sheet)
    best = largest_batch(mlp, small)
    assert estimate_memory(mlp(best), small).fits
    assert not estimate_memory(mlp(best + 1), small).fits
    assert largest_batch(mlp, small, most=best - 1) == best - 1
    assert largest_batch(mlp, small, start=3) == largest_batch(mlp, small, start=5 * best) == best


def test_no_batch_fits_a_model_that_does_not_train_on_one_sample() -> None:
    def with_batch_norm(batch: int) -> Graph:
        if batch == 1:
            raise InvalidRequest("batch norm of one value")
        return mlp(batch)

    tiny = device("p600")  # 2 GB, of which CUDA's context takes most
    assert not fits_memory(mlp(2, layers=64), tiny)
    assert largest_batch(lambda batch: mlp(batch, layers=64), tiny, start=8) == 0
    assert largest_batch(with_batch_norm, replace(tiny, sheet=device("t4").sheet), start=8) > 8

    def too_large(batch: int) -> Graph:
        return with_batch_norm(batch) if batch == 1 else mlp(batch, layers=64)

    assert largest_batch(too_large, tiny, start=8) == 0


def test_a_step_fits_as_estimated_in_full() -> None:
    small = replace(device("a100-sxm-40gb"), sheet=device("gtx1060-6gb").sheet)
    best = largest_batch(mlp, small)
    for size in (1, best // 2, best - 1, best, best + 1, best + 2, best + 100, 2 * best):
        assert fits_memory(mlp(size), small) == estimate_memory(mlp(size), small).fits


def test_few_batches_are_simulated_to_find_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of which the tensors alone do not fit, nor those far below the limit."""
    small = replace(device("a100-sxm-40gb"), sheet=device("gtx1060-6gb").sheet)
    simulated: list[int] = []
    tried: list[int] = []

    def counted(steps: StepEvents, sizes: Integers, capacity_bytes: float | None = None) -> Footprint:
        simulated.append(tried[-1])
        return simulate_steps(steps, sizes, capacity_bytes)

    monkeypatch.setattr(estimate, "simulate_steps", counted)

    def graph_at(size: int) -> Graph:
        tried.append(size)
        return replace(mlp(size))  # one that nothing is known of

    best = largest_batch(graph_at, small)
    assert best in simulated
    assert len(simulated) < 2 * len(tried) / 3
    assert all(best / 2 < size < 1.1 * best for size in simulated)


def test_a_result_that_fragments_more_than_expected_is_found_by_simulations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = replace(device("a100-sxm-40gb"), sheet=device("gtx1060-6gb").sheet)
    best = largest_batch(mlp, small)
    monkeypatch.setattr(estimate, "FRAGMENTED", 1.0)  # everything that may fit is expected to
    monkeypatch.setattr(estimate, "SEGMENTS_BYTES", 0)
    assert largest_batch(mlp, small) == best


def test_the_search_for_the_largest_batch_tries_the_same_batches_wherever_it_starts() -> None:
    small = replace(device("a100-sxm-40gb"), sheet=device("gtx1060-6gb").sheet)

    def bisected(start: int) -> list[int]:
        tried: list[int] = []

        def graph_at(size: int) -> Graph:
            tried.append(size)
            return mlp(size)

        largest_batch(graph_at, small, start=start)
        return [size for size in tried if size & (size - 1)]  # no power of two

    assert bisected(1) == bisected(3) == bisected(1_000_000)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="zero_stage must be 0, 1, 2 or 3, got 4"):
        MemoryOptions(zero_stage=4)
    with pytest.raises(InvalidRequest, match="at least 1"):
        MemoryOptions(data_parallel=0)
    with pytest.raises(InvalidRequest, match="at least 1"):
        largest_batch(mlp, device("a100-sxm-40gb"), most=0)


def with_memory(of: Device, size: float) -> Device:
    """A device as it would be with another amount of memory."""
    facts = tuple(
        replace(fact, value=size) if fact.quantity == "memory_bytes" else fact for fact in of.sheet.facts
    )
    return replace(of, sheet=Sheet(of.sheet.subject, facts))


def test_a_step_that_fits_is_not_estimated_larger_than_the_device() -> None:
    """A device large enough for what lives at the peak, but not for what the allocator would keep, makes it
    give cached blocks back."""
    graph = graph_of(workload_of(WorkloadRequest("alexnet", batch=64, precision="fp16")))
    loose = estimate_memory(graph, device("rtx3090"))
    small = with_memory(device("rtx3090"), (loose.bytes - 10 * MIB) / memory_calibration().usable_share)
    tight = estimate_memory(graph, small)
    assert tight.fits
    assert loose.bytes > tight.capacity_bytes >= tight.bytes
