"""What share of its nominal memory bandwidth a device really delivers to streaming kernels.

    share = measured copy or triad bandwidth / nominal bandwidth

Pascal and Turing boards reach about 0.75, later ones 0.8-0.93; the share belongs to the memory controller and
the board, so a device that nobody measured takes the mean of its generation, then of its vendor.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from foretrain.errors import MissingData
from foretrain.facts.devices import Device, device, devices
from foretrain.facts.sheets import data_root, read_toml

FILE = "bandwidth.toml"


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """The share of a nominal figure, of bandwidth or of peak, that one device was seen to deliver."""

    device_id: str
    share: float
    source: str


@cache
def published() -> tuple[DeviceShare, ...]:
    """The published bandwidths as shares of the nominal ones, copy and triad averaged."""
    rows = read_toml(data_root() / "calibrations" / FILE)["measured"]
    found = []
    for row in rows:
        known = device(row["device"])
        figures = [row[key] for key in row if key.endswith("_bytes_per_second")]
        found.append(DeviceShare(known.id, fmean(figures) / known.memory_bytes_per_second, row["source"]))
    return tuple(found)


def nearest_share(target: Device, known: Collection[DeviceShare]) -> float:
    """The share `target` delivers, going by the devices known.

    Its own first, then those of its family, generation, vendor and kind, whichever is nearest.
    """
    for level in ("id", "family", "generation", "vendor", "kind"):
        wanted = getattr(target, level)
        shares = _by_device([row for row in known if getattr(devices()[row.device_id], level) == wanted])
        if shares:
            return fmean(shares.values())
    raise MissingData(f"nothing was measured on any {target.kind}, so nothing can be told of {target.id}")


def _by_device(rows: Collection[DeviceShare]) -> Mapping[str, float]:
    """The mean share of each device, so that one measured often does not outweigh the others."""
    shares: dict[str, list[float]] = {}
    for row in rows:
        shares.setdefault(row.device_id, []).append(row.share)
    return {name: fmean(values) for name, values in shares.items()}
