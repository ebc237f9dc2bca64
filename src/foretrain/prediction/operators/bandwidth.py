"""The share of nominal memory bandwidth that a device delivers to streaming kernels.

    share = measured copy or triad bandwidth / nominal bandwidth

Pascal and Turing boards reach about 0.75, later ones 0.8-0.93. The share depends on the memory controller and
the board, so a device without measurements has the mean of its generation, else of its vendor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from foretrain.errors import MissingData
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import Device, device, devices

FILE = "bandwidth.toml"


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """The measured share of nominal bandwidth or peak of one device."""

    device_id: str
    share: float
    source: str


@cache
def published() -> tuple[DeviceShare, ...]:
    """Published bandwidths as shares of nominal bandwidth; the mean of copy and triad."""
    rows = calibration_content(FILE)["measured"]
    shares = []
    for row in rows:
        known = device(row["device"])
        figures = [row[key] for key in row if key.endswith("_bytes_per_second")]
        shares.append(DeviceShare(known.id, fmean(figures) / known.memory_bytes_per_second, row["source"]))
    return tuple(shares)


def nearest_share(target: Device, known: Collection[DeviceShare]) -> float:
    """The share of a device: measured on it, else the mean of its family, generation, vendor or kind."""
    for level in ("id", "family", "generation", "vendor", "kind"):
        value = getattr(target, level)
        shares = _by_device([row for row in known if getattr(devices()[row.device_id], level) == value])
        if shares:
            return fmean(shares.values())
    raise MissingData(f"no {target.kind} was measured, so the share of {target.id} cannot be estimated")


def _by_device(rows: Collection[DeviceShare]) -> Mapping[str, float]:
    """The mean share of each device, so that devices count equally."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        shares.setdefault(row.device_id, []).append(row.share)
    return {name: fmean(values) for name, values in shares.items()}
