"""What GPUs make of FP8 besides the rate of their tensor cores (`data/calibrations/fp8.toml`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from foretrain.facts.devices import Device
from foretrain.facts.sheets import data_root, read_toml
from foretrain.prediction.operators.listing import WorkTable
from foretrain.workloads.rules.fp8 import TRANSPOSED


@cache
def _facts() -> Mapping[str, Any]:
    return read_toml(data_root() / "calibrations" / "fp8.toml")


def _capability(device: Device) -> str:
    return device.sheet.text("compute_capability") if device.sheet.has("compute_capability") else ""


def block_slowdown(device: Device) -> float:
    """How much longer a product takes with scales for blocks; 1 where that was not measured."""
    return float(_facts()["block_slowdown"].get(_capability(device), 1.0))


def without_transposes(works: WorkTable, device: Device) -> WorkTable:
    """Works whose casts write no transposed copies, on devices that multiply operands in any layout."""
    if not works.dim(TRANSPOSED, 0).any() or not _takes_any_layout(device):
        return works
    return WorkTable(
        tuple(
            replace(work, write_bytes=work.write_bytes - work.dims.get(TRANSPOSED, 0)) for work in works.works
        )
    )


def _takes_any_layout(device: Device) -> bool:
    own = _capability(device)
    return own.replace(".", "").isdigit() and float(own) >= _facts()["layouts"]["any_from"]
