"""Delivered shares: whose measurements count for whom, and the integrity of the published ones."""

from __future__ import annotations

import pytest

from foretrain.errors import MissingData
from foretrain.facts.devices import device, devices
from foretrain.facts.sheets import data_root, read_toml
from foretrain.prediction.operators.bandwidth import FILE, DeviceShare, nearest_share, published

KNOWN = (
    DeviceShare("a100-sxm-80gb", 0.8, "test"),
    DeviceShare("a100-sxm-40gb", 0.9, "test"),
    DeviceShare("rtx3090", 0.7, "test"),
    DeviceShare("mi300x", 0.5, "test"),
)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("a100-sxm-80gb", 0.8),  # its own
        ("a100-pcie-80gb", 0.85),  # its family: the two A100s
        ("rtxa6000", 0.8),  # its generation: all of Ampere
        ("h100-sxm", 0.8),  # its vendor
        ("mi250x", 0.5),
    ],
)
def test_the_nearest_devices_count(name: str, share: float) -> None:
    assert nearest_share(device(name), KNOWN) == pytest.approx(share)


def test_a_device_measured_twice_counts_once() -> None:
    twice = (*KNOWN, DeviceShare("rtx3090", 0.5, "test"))
    assert nearest_share(device("rtxa6000"), twice) == pytest.approx((0.8 + 0.9 + 0.6) / 3)


def test_nothing_measured_is_an_error() -> None:
    with pytest.raises(MissingData, match="h100-sxm"):
        nearest_share(device("h100-sxm"), ())


def test_published_bandwidths_have_sources_and_are_below_nominal() -> None:
    raw = read_toml(data_root() / "calibrations" / FILE)
    for row in published():
        assert row.device_id in devices()
        assert 0.6 < row.share < 1, row
        assert {"title", "locator", "retrieved", "licence"} <= raw["sources"][row.source].keys()
    used = {row.source for row in published()}
    assert used == set(raw["sources"])
