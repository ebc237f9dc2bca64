"""What every calibration file of the operator models must say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrain.facts.devices import devices
from foretrain.facts.sheets import data_root

FILES = ("streaming.json", "convolution.json")


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
        assert data["source"] in {"neusight", "deepbench", "miopen", "justus"}
        assert all(count > 100 for count in data["measurements"].values())
        assert all(device_id in devices() for device_id in data["measurements"])


def spreads(value: Any) -> list[dict[str, float]]:
    """All quantiles stored below a value."""
    if "p10" in value:
        return [value]
    return [spread for below in value.values() for spread in spreads(below)]


@pytest.mark.parametrize("name", FILES)
def test_residuals_are_ordered_and_counted(name: str) -> None:
    stored = spreads(content(name)["residuals"])
    assert stored
    for spread in stored:
        assert 0 < spread["p10"] < spread["p50"] < spread["p90"] < 3
        assert 0.8 < spread["p50"] < 1.25
        assert spread["cases"] > 100
