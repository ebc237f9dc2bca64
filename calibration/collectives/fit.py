"""Fits a link technology's parameters to measured collectives: least squares of log(predicted / measured).

Parameters are a vector of logarithms. Devices of one technology share all but three: the share of its rate
that a link reaches, the pace of its steps, and the rate of sums in its switch. An unmeasured link takes the
geometric mean of the others. Large messages count most, each device type counts as much as any other, and
outliers (a protocol badly chosen by one version of a library) count little: soft L1 loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from calibration.datasets.measurements import CollectiveTime
from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware, hardware
from foretrain.facts.links import NVLINK, link, links
from foretrain.prediction.collectives.costs import Group, Verb, collective_seconds
from foretrain.prediction.collectives.network import (
    Behaviour,
    CollectiveCalibration,
    LinkFit,
    Network,
    network_of,
)
from foretrain.prediction.operators.pricing import Floats

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
LARGE_BYTES = 2**20
_SMALL_WEIGHT = 0.4
_ROWS = 100.0
_PRIOR, _OFFSET_PRIOR, _ODD = 0.05, 0.3, 0.1


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

    def calibration(self, vector: Floats, sums: Mapping[str, bool]) -> CollectiveCalibration:
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
        return CollectiveCalibration({self.technology: behaviour}, links)


def _centred(shared: Mapping[str, float], mean: Floats, contention: Mapping[str, float]) -> Behaviour:
    """The behaviour of a link at the mean of those measured."""
    values = dict(shared)
    values["share"] *= float(np.exp(mean[0]))
    values["in_switch_share"] *= float(np.exp(mean[2]))
    for name in values:
        if name.endswith("_cycles"):
            values[name] *= float(np.exp(mean[1]))
    return Behaviour(**values, contention=contention)


def merged(parts: Sequence[CollectiveCalibration]) -> CollectiveCalibration:
    """Several technologies in one calibration."""
    return CollectiveCalibration(
        {name: value for part in parts for name, value in part.technologies.items()},
        {name: value for part in parts for name, value in part.links.items()},
    )


@dataclass(frozen=True, eq=False)
class Block:
    """Times of one verb on a number of devices of one machine, by size."""

    device_id: str
    machine: Hardware
    topology: str
    verb: Verb
    devices: int
    sums: bool
    bytes: Floats
    seconds: Floats


def blocks(times: Sequence[CollectiveTime]) -> tuple[Block, ...]:
    """Measurements grouped by machine, verb and device count, so that each group is predicted at once."""
    groups: dict[tuple[object, ...], list[CollectiveTime]] = {}
    for time in times:
        key = (time.source, time.machine, time.topology, time.verb, time.devices, time.sums)
        groups.setdefault(key, []).append(time)
    return tuple(_block(group) for group in groups.values())


def _block(group: Sequence[CollectiveTime]) -> Block:
    first = group[0]
    machine = hardware(first.machine)
    return Block(
        machine.device.id,
        machine,
        first.topology,
        first.verb,
        first.devices,
        first.sums,
        np.array([time.bytes for time in group]),
        np.array([time.seconds for time in group]),
    )


def predicted(block: Block, learned: CollectiveCalibration) -> Floats:
    """Seconds of a block's messages."""
    network = network_for(block, learned)
    group = Group(block.devices, block.devices)
    return collective_seconds(block.verb, block.bytes, group, network, block.machine.device, learned)


def network_for(block: Block, learned: CollectiveCalibration) -> Network:
    """The network a block was measured on: its machine's, in the topology that the measurers had."""
    network = network_of(block.machine, learned=learned)
    tier = network.intra
    assert tier is not None
    contention = learned.technologies[tier.kind.behaviour].contention
    own = learned.link(tier.kind, tier.link).contention
    tier = replace(
        tier,
        topology=block.topology,
        contention=own.get(block.topology, contention.get(block.topology, 0.0)),
        in_switch_bytes_per_second=tier.in_switch_bytes_per_second if block.sums else 0.0,
    )
    return replace(network, intra=tier)


def link_of(device: Device | str, measured_blocks: Sequence[Block]) -> str:
    """The link that joins a device's blocks."""
    name = device if isinstance(device, str) else device.id
    block = next(block for block in measured_blocks if block.device_id == name)
    tier = network_of(block.machine).intra
    assert tier is not None
    return tier.link


def fit(measured_blocks: Sequence[Block], kind: str) -> CollectiveCalibration:
    """The calibration of one technology from blocks of devices of it."""
    from scipy.optimize import least_squares

    names = tuple(dict.fromkeys(link_of(block.device_id, measured_blocks) for block in measured_blocks))
    topologies = () if kind == NVLINK else tuple(dict.fromkeys(block.topology for block in measured_blocks))
    layout = Layout(kind, names, topologies)
    sums = {name: name in links() and link(name).sums_in_switch for name in names}
    weights = _weights(measured_blocks)
    start = layout.start()
    pull = np.where(layout.is_offset() > 0, _OFFSET_PRIOR, _PRIOR)

    def residuals(vector: Floats) -> Floats:
        learned = layout.calibration(vector, sums)
        off = [
            weight * np.log(predicted(block, learned) / block.seconds)
            for block, weight in zip(measured_blocks, weights, strict=True)
        ]
        return np.concatenate([*off, pull * (vector - start)])

    best = least_squares(residuals, start, loss="soft_l1", f_scale=_ODD, max_nfev=60).x
    return layout.calibration(best, sums)


def _weights(measured_blocks: Sequence[Block]) -> list[Floats]:
    rows: dict[str, int] = {}
    for block in measured_blocks:
        rows[block.device_id] = rows.get(block.device_id, 0) + len(block.bytes)
    return [
        np.where(block.bytes >= LARGE_BYTES, 1.0, _SMALL_WEIGHT) * np.sqrt(_ROWS / rows[block.device_id])
        for block in measured_blocks
    ]


def by_device(measured_blocks: Sequence[Block]) -> Mapping[str, list[Block]]:
    """Blocks by the type of device: the A100 of two laboratories are one type."""
    groups: dict[str, list[Block]] = {}
    for block in measured_blocks:
        groups.setdefault(block.device_id, []).append(block)
    return groups
