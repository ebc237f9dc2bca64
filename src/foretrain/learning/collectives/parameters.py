"""A technology's calibration as a vector of logarithms, for fitting, and back.

Devices of one technology share all parameters but three: the share of its rate that a link reaches, the pace
of its steps, and the rate of sums in its switch. A link that was not measured takes the geometric mean of the
others'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from foretrain.prediction.collectives.calibration import Behaviour, Calibration, LinkFit
from foretrain.prediction.operators.listing import Floats

START = Behaviour(
    share=1.0,
    copy_bytes_per_second=1e12,
    startup_cycles=1.3e4,
    step_cycles=1.8e3,
    low_latency_share=0.35,
    bulk_startup_cycles=1e4,
    bulk_step_cycles=1.5e3,
    saturation_bytes=6e5,
    peer_share=0.95,
    peer_copy_bytes_per_second=1e12,
    peer_startup_cycles=1.6e4,
    peer_step_cycles=7e2,
    in_switch_share=0.5,
    contention={},
)
"""Where the search starts, and what a parameter stays at that the data say nothing of."""
_NAMES = tuple(field.name for field in fields(Behaviour) if field.name != "contention")
_OFFSETS = 3
_AT_MOST_ONE = ("low_latency_share", "peer_share")


@dataclass(frozen=True)
class Layout:
    """Which entries of a vector mean what: shared ones, three for each link, one for each topology."""

    technology: str
    links: tuple[str, ...]
    topologies: tuple[str, ...] = ()

    def start(self) -> Floats:
        """The vector the search starts at."""
        shared = [np.log(getattr(START, name)) for name in _NAMES]
        return np.array([*shared, *([0.0] * (_OFFSETS * len(self.links))), *([0.0] * len(self.topologies))])

    def is_offset(self) -> Floats:
        """1 for entries that say how a link differs from the others, else 0."""
        marks = np.zeros(len(self.start()))
        marks[len(_NAMES) : len(_NAMES) + _OFFSETS * len(self.links)] = 1
        return marks

    def calibration(self, vector: Floats, sums: Mapping[str, bool]) -> Calibration:
        """The calibration a vector stands for; `sums` says which links' switches can sum."""
        shared = dict(zip(_NAMES, np.exp(vector[: len(_NAMES)]).tolist(), strict=True))
        for name in _AT_MOST_ONE:
            shared[name] = min(1.0, shared[name])
        offsets = vector[len(_NAMES) : len(_NAMES) + _OFFSETS * len(self.links)].reshape(-1, _OFFSETS)
        contention = np.exp(vector[len(_NAMES) + _OFFSETS * len(self.links) :])
        by_topology = dict(zip(self.topologies, contention.tolist(), strict=True))
        mean = offsets.mean(axis=0)
        summing = [sums[name] for name in self.links]
        mean[2] = offsets[summing, 2].mean() if any(summing) else 0.0
        behaviour = _centred(shared, mean, by_topology)
        links = {
            name: LinkFit(
                share=behaviour.share * float(np.exp(share - mean[0])),
                pace=float(np.exp(pace - mean[1])),
                in_switch_share=behaviour.in_switch_share * float(np.exp(sum_ - mean[2])) * sums[name],
            )
            for name, (share, pace, sum_) in zip(self.links, offsets.tolist(), strict=True)
        }
        return Calibration({self.technology: behaviour}, links)


def _centred(shared: Mapping[str, float], mean: Floats, contention: Mapping[str, float]) -> Behaviour:
    """The behaviour of a link at the mean of those measured."""
    values = dict(shared)
    values["share"] *= float(np.exp(mean[0]))
    values["in_switch_share"] *= float(np.exp(mean[2]))
    for name in values:
        if name.endswith("_cycles"):
            values[name] *= float(np.exp(mean[1]))
    return Behaviour(**values, contention=contention)


def merged(parts: Sequence[Calibration]) -> Calibration:
    """Several technologies in one calibration."""
    return Calibration(
        {name: value for part in parts for name, value in part.behaviours.items()},
        {name: value for part in parts for name, value in part.links.items()},
    )
