"""Memory at many batch sizes from a few simulations, against the simulation of each."""

from __future__ import annotations

from functools import partial

import pytest
from tests.support.planned import workload

from foretrain.facts.devices import device
from foretrain.jobs.batch_limits import DeviceMemory, capacity_bytes
from foretrain.prediction.memory.estimate import MemoryEstimate, estimate_memory
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.workload import graph_at

CONFIGURATIONS = ((1, 0), (2, 0), (64, 0), (2, 1), (8, 1), (8, 2), (2, 3), (16, 3))
"""Devices, and the stage of ZeRO."""


@pytest.fixture(scope="module", params=["mnist-cnn", "voice-linear"])
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def memory(model: str) -> DeviceMemory:
    return DeviceMemory(partial(graph_at, workload(model)), device("a100-sxm-80gb"), 1)


def simulated(model: str, batch: int, stage: int, devices: int, accumulates: bool, on: str) -> MemoryEstimate:
    options = MemoryOptions(data_parallel=devices, zero_stage=stage, keep_gradients=accumulates)
    return estimate_memory(graph_at(workload(model), batch), device(on), options)


@pytest.mark.parametrize("on", ["t4", "v100-sxm2-16gb", "h100-sxm"])
@pytest.mark.parametrize("batch", [1, 2, 32, 100])
def test_within_three_percent_of_the_simulation(
    memory: DeviceMemory, model: str, batch: int, on: str
) -> None:
    for devices, stage in CONFIGURATIONS:
        estimate = memory.bytes(batch, stage, devices, False, device(on))
        expected = simulated(model, batch, stage, devices, False, on).bytes
        assert estimate == pytest.approx(expected, rel=0.03), (devices, stage)


def test_gradients_that_are_kept_are_estimated_rather_too_large(memory: DeviceMemory, model: str) -> None:
    """Where activations are small beside them, some of their memory is used twice."""
    for devices, stage in CONFIGURATIONS:
        estimate = memory.bytes(32, stage, devices, True, device("t4"))
        expected = simulated(model, 32, stage, devices, True, "t4").bytes
        assert 0.97 * expected <= estimate <= 1.05 * expected, (devices, stage)
        assert estimate >= memory.bytes(32, stage, devices, False, device("t4"))


def test_larger_batches_need_more_and_sharding_over_more_devices_less(
    memory: DeviceMemory, model: str
) -> None:
    on = device("t4")
    plain = [memory.bytes(batch, 0, 1, False, on) for batch in (1, 4, 16, 64, 256, 1024)]
    assert plain == sorted(plain)
    assert plain[0] < plain[-1]
    for stage in (1, 2, 3):
        shares = [memory.bytes(16, stage, devices, False, on) for devices in (2, 4, 8, 64)]
        assert shares == sorted(shares, reverse=True)
        if model == "voice-linear":  # the other's state is smaller than the pieces memory comes in
            assert shares[0] < memory.bytes(16, 0, 2, False, on)


def test_one_device_has_nothing_to_shard(memory: DeviceMemory) -> None:
    on = device("t4")
    assert memory.bytes(16, 3, 1, False, on) == memory.bytes(16, 0, 1, False, on)


def test_some_of_a_devices_memory_is_not_to_be_had() -> None:
    on = device("t4")
    assert 0.9 * on.memory_bytes < capacity_bytes(on) < on.memory_bytes
    estimate = estimate_memory(graph_at(workload(), 1), on)
    assert capacity_bytes(on) == estimate.capacity_bytes
