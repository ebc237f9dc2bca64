"""Sia's rows in columns."""

from __future__ import annotations

import pytest
from calibration.clusters.steps import cluster_steps
from calibration.datasets.sia import CLUSTERS, SiaStep

from calibration.datasets import sia_models

ONE = SiaStep("ncf", CLUSTERS["aws"], "placements", 1, 1, (1,), 64, 0.01, 0.001)
SEVEN = SiaStep("ncf", CLUSTERS["aws"], "placements", 3, 7, (1, 2, 4), 64, 0.02, 0.01)
SPREAD = SiaStep("ncf", CLUSTERS["aws"], "scalability", 6, 14, None, 64, 0.03, 0.01)


def test_the_fullest_node_counts() -> None:
    found = cluster_steps([ONE, SEVEN, SPREAD])
    assert found.fullest.tolist() == [1, 4, 3]
    assert found.nodes.tolist() == [1, 3, 6]
    assert found.step_seconds.tolist() == [0.01, 0.02, 0.03]


def test_launches_are_counted_for_each_gradient() -> None:
    found = cluster_steps([ONE, SEVEN])
    tensors = 12
    assert found.launches.tolist() == [
        tensors * sia_models.launches_per_gradient("ncf", devices) for devices in (1, 7)
    ]
    assert found.bucket_bytes.sum(axis=1) == pytest.approx(4 * 1_602_657)


def test_only_mixed_precision_takes_longer_by_its_factor() -> None:
    step = SiaStep("resnet50", CLUSTERS["azure"], "placements", 1, 1, (1,), 32, 0.2, 0.0)
    once, longer = cluster_steps([ONE, step]), cluster_steps([ONE, step], mixed_factor=1.5)
    assert longer.device_seconds / once.device_seconds == pytest.approx([1.0, 1.5])
    assert longer.bucket_leads[1] == pytest.approx(1.5 * once.bucket_leads[1])
