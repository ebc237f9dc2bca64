"""The calibration of links: achieved share of their rate, and latencies.

Latencies are in cycles of the device's boost clock, since they are spent in kernels that poll. `pace` is the
latency of a link over that of its technology. Links that were not measured have the values of their
technology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, quantiles
from typing import Any

from foretrain.facts.calibrations import calibration_content
from foretrain.facts.links import topologies

FILE = "collectives.json"
NVLINK, PCIE, NETWORK = "nvlink", "pcie", "network"
HOST_BRIDGE = "host-bridge"
_DEVICES = (2, 4, 8)
_TECHNOLOGIES = {"nvlink": NVLINK, "nvswitch": NVLINK, "xgmi": NVLINK, "pcie": PCIE}


@dataclass(frozen=True)
class Behaviour:
    """The constants of one technology in the equations of `medium`.

    `share` is the achieved rate over the rate NCCL plans with; `contention` is by topology, see `network`.
    """

    share: float
    copy_bytes_per_second: float
    startup_cycles: float
    step_cycles: float
    low_latency_share: float
    bulk_startup_cycles: float
    bulk_step_cycles: float
    saturation_bytes: float
    peer_share: float
    peer_copy_bytes_per_second: float
    peer_startup_cycles: float
    peer_step_cycles: float
    in_switch_share: float
    contention: Mapping[str, float]


@dataclass(frozen=True)
class LinkFit:
    """The fit of one link: achieved rate over the rate NCCL plans with, and the pace of its steps.

    `in_switch_share` is the rate of sums in the switch over the nominal rate; 0 without such sums.
    """

    share: float
    pace: float
    in_switch_share: float = 0.0
    contention: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Spread:
    """Quantiles of measured / predicted."""

    p10: float
    p90: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """Technologies, measured links, and quantiles of measured / predicted for measured and other links."""

    behaviours: Mapping[str, Behaviour]
    links: Mapping[str, LinkFit]
    measured: Mapping[str, Spread] = field(default_factory=dict)
    unmeasured: Mapping[str, Spread] = field(default_factory=dict)

    def link(self, kind: str, link_id: str) -> LinkFit:
        """The fit of a link; the mean of its technology if it was not measured."""
        behaviour = self.behaviours[technology(kind)]
        return self.links.get(link_id) or LinkFit(behaviour.share, 1.0, behaviour.in_switch_share)

    def is_measured(self, link_id: str, topology: str) -> bool:
        """Whether a link was measured and is the same in all machines: hosts without peer access are not."""
        shared = topologies().find(topology)
        return link_id in self.links and (shared is None or shared.has_peers)

    def spread(self, kind: str, link_id: str, topology: str) -> Spread:
        """Quantiles of measured / predicted for a link; without peer access those among such hosts."""
        shared = topologies().find(topology)
        if shared is not None and not shared.has_peers:
            among = unseen_spread(dict(enumerate(shared.exponents)))
            return Spread(among["p10"], among["p90"])
        known = self.measured if self.is_measured(link_id, topology) else self.unmeasured
        return known[technology(kind)]


def technology(kind: str) -> str:
    """The technology of a kind of link."""
    return _TECHNOLOGIES.get(kind, NETWORK)


def unseen_spread(machines: Mapping[Any, float]) -> dict[str, float]:
    """Quantiles of measured / predicted of 2, 4 and 8 devices of a machine, predicted from the others."""
    ratios = sorted(
        (devices / 2) ** (own - fmean(value for other, value in machines.items() if other != name))
        for name, own in machines.items()
        for devices in _DEVICES
    )
    p10, p50, p90 = quantiles(ratios, n=10, method="inclusive")[::4]
    return {"p10": p10, "p50": p50, "p90": p90, "cases": len(ratios)}


@cache
def calibration() -> Calibration:
    """The calibration that ships with the package."""
    return read(calibration_content(FILE))


def read(content: Mapping[str, Any]) -> Calibration:
    """A calibration from the content of its file."""
    return Calibration(
        behaviours={name: Behaviour(**values) for name, values in content["technologies"].items()},
        links={
            name: LinkFit(
                values["share"], values["pace"], values["in_switch_share"], values.get("contention", {})
            )
            for name, values in content["links"].items()
        },
        measured={name: _spread(values) for name, values in content["spread"]["measured"].items()},
        unmeasured={name: _spread(values) for name, values in content["spread"]["unmeasured"].items()},
    )


def _spread(values: Mapping[str, float]) -> Spread:
    return Spread(values["p10"], values["p90"])
