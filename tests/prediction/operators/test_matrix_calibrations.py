"""What the calibration files of products, attention and recurrent layers must say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrain.facts.devices import devices
from foretrain.facts.sheets import data_root
from foretrain.prediction.operators import corrections, matrix

_SOURCES = {
    "cudnn_frontend",
    "neusight",
    "aiconfigurator",
    "deepbench",
    "vidur",
    "estimate_train_time",
    "aiter",
}
FILES = ("products.json", "attention.json", "recurrent.json")


def content(name: str) -> dict[str, Any]:
    """A calibration file."""
    read: dict[str, Any] = json.loads((data_root() / "calibrations" / name).read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize("name", FILES)
def test_states_its_format_software_and_data(name: str) -> None:
    stored = content(name)
    assert stored["format"] == 1
    assert {"python", "numpy"} <= stored["software"].keys()
    for data in stored["data"]:
        assert data["source"] in _SOURCES
        assert all(count > 50 for count in data["measurements"].values())
        assert all(device_id in devices() for device_id in data["measurements"])


@pytest.mark.parametrize("name", FILES)
def test_residuals_are_ordered_and_wider_for_unseen_devices(name: str) -> None:
    seen, unseen = (content(name)["residuals"][split] for split in ("seen", "unseen"))
    for spread in (seen, unseen):
        assert 0 < spread["p10"] < spread["p50"] < spread["p90"] < 3
        assert spread["cases"] > 1000
    assert unseen["p90"] / unseen["p10"] > seen["p90"] / seen["p10"]


def test_shares_of_peak_are_of_measured_devices_and_sane() -> None:
    measured = {name for data in content("products.json")["data"] for name in data["measurements"]}
    for unit in matrix.calibration().units.values():
        assert set(unit.shares) <= measured
        assert all(0.2 < share < 1.4 for share in unit.shares.values())


def test_corrections_are_of_measured_kernels() -> None:
    known = {
        corrections.key(name, devices()[device_id], is_plain)
        for name, unit in matrix.calibration().units.items()
        for device_id in unit.shares
        for is_plain in (False, True)
    }
    assert set(corrections.forests()) <= known


def test_calibrations_are_small() -> None:
    folder = data_root() / "calibrations"
    for name in (*FILES, corrections.FILE):
        assert len((folder / name).read_bytes()) < 1_000_000
