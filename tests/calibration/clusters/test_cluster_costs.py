"""Costs of a cluster, checked by hand and against the timeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration.clusters.costs import (
    Hosts,
    Wires,
    computing_seconds,
    exposed_seconds,
    fit_hosts,
    fit_wires,
    ring_seconds,
    step_seconds,
)
from calibration.clusters.steps import ClusterSteps

from foretrain.prediction.timeline import COMPUTE, Stream, Task, simulate

WIRES = Wires(pair_bytes_per_second=10.0, contention=1.0, network_bytes_per_second=2.0, startup_seconds=0.5)


def steps(
    device: list[float],
    devices: list[int],
    fullest: list[int],
    nodes: list[int],
    launches: list[float] | None = None,
    cluster: str = "c",
    models: list[str] | None = None,
) -> ClusterSteps:
    count = len(device)
    return ClusterSteps(
        models=np.array(models or ["m"] * count),
        clusters=np.array([cluster] * count),
        batches=np.ones(count, np.int64),
        devices=np.array(devices, np.int64),
        fullest=np.array(fullest, np.int64),
        nodes=np.array(nodes, np.int64),
        device_seconds=np.array(device),
        launches=np.array(launches or [0.0] * count),
        bucket_bytes=np.tile([20.0, 10.0, 0.0], (count, 1)),
        bucket_leads=np.tile([6.0, 0.0, 0.0], (count, 1)),
        step_seconds=np.ones(count),
        sync_seconds=np.zeros(count),
    )


def test_a_power_of_one_adds_and_a_large_one_takes_the_longer() -> None:
    some = steps([3.0], [1], [1], [1], launches=[4.0])
    assert computing_seconds(some, Hosts(0.0, 1.0, 1.0)) == pytest.approx([7.0])
    assert computing_seconds(some, Hosts(0.0, 1.0, 2.0)) == pytest.approx([5.0])
    assert computing_seconds(some, Hosts(1.0, 1.0, 60.0)) == pytest.approx([5.0], rel=1e-3)


def test_rings_take_the_slowest_link() -> None:
    some = steps([1.0, 1.0, 1.0], [2, 4, 4], [2, 4, 2], [1, 1, 2])
    seconds = ring_seconds(some, WIRES)
    assert seconds[0, 0] == pytest.approx(20 / 10 + 0.5)  # a pair
    assert seconds[1, 0] == pytest.approx(1.5 * 20 / 5 + 0.5)  # four share what two had
    assert seconds[2, 0] == pytest.approx(1.5 * 20 / 2 + 0.5)  # across nodes


def test_exposed_is_what_the_timeline_says() -> None:
    some = steps([10.0], [2], [2], [1])
    reductions = ring_seconds(some, WIRES)
    tasks = [
        Task("backward 1", Stream(0, COMPUTE), 4.0),
        Task("backward 2", Stream(0, COMPUTE), 6.0, (0,)),
        Task("reduce 1", Stream(0, "ring"), float(reductions[0, 0]), (0,)),
        Task("reduce 2", Stream(0, "ring"), float(reductions[0, 1]), (1,)),
    ]
    assert exposed_seconds(some, reductions) == pytest.approx([simulate(tasks).seconds - 10.0])


def test_one_worker_does_not_wait() -> None:
    some = steps([1.0], [1], [1], [1])
    assert exposed_seconds(some, ring_seconds(some, WIRES)).tolist() == [0.0]


def test_fits_recover_what_made_the_steps() -> None:
    generator = np.random.default_rng(1)
    count = 240
    devices = generator.choice([1, 2, 4, 8, 16], count)
    fullest = np.minimum(devices, generator.choice([1, 2, 4], count))
    some = steps(
        generator.uniform(0.05, 1.0, count).tolist(),
        devices.tolist(),
        fullest.tolist(),
        (-(-devices // fullest)).tolist(),
        launches=generator.choice([100.0, 2000.0, 9000.0], count).tolist(),
        models=generator.choice(["a", "b", "c"], count).tolist(),
    )
    some = replace(some, bucket_bytes=generator.uniform(1e7, 2e8, (count, 3)))
    hosts, wires = Hosts(0.01, 3e-5, 1.4), Wires(3e9, 0.8, 6e8, 3e-4)
    measured = step_seconds(some, hosts, wires)
    sync = measured - computing_seconds(some, hosts)
    some = replace(some, step_seconds=measured, sync_seconds=sync)
    found, ring = fit_hosts(some)["c"], fit_wires(some)["c"]
    assert found.fixed_seconds == pytest.approx(0.01, rel=0.05)
    assert found.launch_seconds == pytest.approx(3e-5, rel=0.05)
    assert found.overlap_power == pytest.approx(1.4, rel=0.05)
    assert ring.network_bytes_per_second == pytest.approx(6e8, rel=0.03)
    assert ring.pair_bytes_per_second == pytest.approx(3e9, rel=0.1)
