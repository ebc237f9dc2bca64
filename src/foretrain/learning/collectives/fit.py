"""Fit a technology's parameters to measured collectives: least squares of log(predicted / measured).

Large messages count most, each device type as much as any other, and a few odd rows (a protocol badly chosen
by one version of a library) count little: soft L1 loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrain.facts.devices import Device
from foretrain.facts.hardware import Hardware, hardware
from foretrain.facts.links import link, links
from foretrain.learning.collectives.parameters import Layout
from foretrain.learning.measurements.collective_times import CollectiveTime
from foretrain.prediction.collectives._base import Group, Verb
from foretrain.prediction.collectives.calibration import NVLINK, Calibration, technology
from foretrain.prediction.collectives.catalogue import collective_seconds
from foretrain.prediction.collectives.network import Network, network_of
from foretrain.prediction.operators.listing import Floats

LARGE_BYTES = 2**20
_SMALL_WEIGHT = 0.4
_ROWS = 100.0
_PRIOR, _OFFSET_PRIOR, _ODD = 0.05, 0.3, 0.1


@dataclass(frozen=True, eq=False)
class Block:
    """Times of one verb among so many devices of one machine, by size."""

    device_id: str
    machine: Hardware
    topology: str
    verb: Verb
    devices: int
    sums: bool
    bytes: Floats
    seconds: Floats


def blocks(times: Sequence[CollectiveTime]) -> tuple[Block, ...]:
    """Measurements put together, so that each group of devices is told at once."""
    found: dict[tuple[object, ...], list[CollectiveTime]] = {}
    for time in times:
        key = (time.source, time.machine, time.topology, time.verb, time.devices, time.sums)
        found.setdefault(key, []).append(time)
    return tuple(_block(group) for group in found.values())


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


def predicted(block: Block, learned: Calibration) -> Floats:
    """Seconds of a block's messages."""
    network = network_for(block, learned)
    group = Group(block.devices, block.devices)
    return collective_seconds(block.verb, block.bytes, group, network, block.machine.device, learned)


def network_for(block: Block, learned: Calibration) -> Network:
    """The network a block was measured on: its machine's, in the topology that the measurers had."""
    network = network_of(block.machine, learned=learned)
    tier = network.intra
    assert tier is not None
    contention = learned.behaviours[technology(tier.kind)].contention
    own = learned.link(tier.kind, tier.link).contention
    tier = replace(
        tier,
        topology=block.topology,
        contention=own.get(block.topology, contention.get(block.topology, 0.0)),
        in_switch_bytes_per_second=tier.in_switch_bytes_per_second if block.sums else 0.0,
    )
    return replace(network, intra=tier)


def link_of(device: Device | str, found: Sequence[Block]) -> str:
    """The link that joins a device's blocks."""
    name = device if isinstance(device, str) else device.id
    block = next(block for block in found if block.device_id == name)
    tier = network_of(block.machine).intra
    assert tier is not None
    return tier.link


def fit(found: Sequence[Block], kind: str) -> Calibration:
    """The calibration of one technology from blocks of devices of it."""
    from scipy.optimize import least_squares  # type: ignore[import-untyped]

    names = tuple(dict.fromkeys(link_of(block.device_id, found) for block in found))
    topologies = () if kind == NVLINK else tuple(dict.fromkeys(block.topology for block in found))
    layout = Layout(kind, names, topologies)
    sums = {name: name in links() and link(name).sums_in_switch for name in names}
    weights = _weights(found)
    start = layout.start()
    pull = np.where(layout.is_offset() > 0, _OFFSET_PRIOR, _PRIOR)

    def residuals(vector: Floats) -> Floats:
        learned = layout.calibration(vector, sums)
        off = [
            weight * np.log(predicted(block, learned) / block.seconds)
            for block, weight in zip(found, weights, strict=True)
        ]
        return np.concatenate([*off, pull * (vector - start)])

    best = least_squares(residuals, start, loss="soft_l1", f_scale=_ODD, max_nfev=60).x
    return layout.calibration(best, sums)


def _weights(found: Sequence[Block]) -> list[Floats]:
    rows: dict[str, int] = {}
    for block in found:
        rows[block.device_id] = rows.get(block.device_id, 0) + len(block.bytes)
    return [
        np.where(block.bytes >= LARGE_BYTES, 1.0, _SMALL_WEIGHT) * np.sqrt(_ROWS / rows[block.device_id])
        for block in found
    ]


def by_device(found: Sequence[Block]) -> Mapping[str, list[Block]]:
    """Blocks by the type of device: the A100 of two laboratories are one type."""
    groups: dict[str, list[Block]] = {}
    for block in found:
        groups.setdefault(block.device_id, []).append(block)
    return groups
