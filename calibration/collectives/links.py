"""Makes the calibration of collectives: what each link reaches, and the error on unmeasured links.

Contention under one host bridge comes from what steps waited for their gradients. A ring all-reduce among d
devices moves 2(d-1)/d of the gradients through each. Against a pair it is slower by the factor of its rate,
(2/d)^c, so

    c = log( t_d / t_2 · d / (2(d-1)) ) / log(d/2)

whatever the size of the gradients. A machine's exponent is the median over its models and device counts.
Machines differ widely around the 1 of an ideal shared bus: an unmeasured machine takes their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from calibration.collectives.fit import Block, blocks, by_device, fit, link_of, merged, predicted
from calibration.datasets import aiconfigurator, deepbench, sia, vtrain
from calibration.datasets.measurements import powers_of_two
from calibration.datasets.sia import Waiting
from foretrain.facts.links import NETWORK, NVLINK, PCIE
from foretrain.prediction.collectives.network import FILE as FILE
from foretrain.prediction.collectives.network import (
    HOST_BRIDGE,
    Behaviour,
    CollectiveCalibration,
    unseen_spread,
)
from foretrain.prediction.operators.pricing import Floats

_MIB = 2**20
_HALF = 0.5
"""Share of the low-latency protocol on a network: four bytes of data to four of flags."""


def exponents(waits: Sequence[Waiting]) -> Mapping[str, float]:
    """The exponent of each machine, at least 0."""
    pairs = {(item.cluster, item.model): item.seconds for item in waits if item.devices == 2}
    each: dict[str, list[float]] = {}
    for item in waits:
        if item.devices > 2:
            moved = item.devices / (2 * (item.devices - 1))
            slower = item.seconds / pairs[item.cluster, item.model] * moved
            each.setdefault(item.cluster, []).append(log(slower) / log(item.devices / 2))
    return {name: max(0.0, median(values)) for name, values in each.items()}


def corpus(data: Path, with_vtrain: bool = True) -> Mapping[str, tuple[Block, ...]]:
    """All blocks of measurements, by technology."""
    nccl = aiconfigurator.read_collectives(data)
    by_switch = [time for time in nccl if time.topology != HOST_BRIDGE]
    by_bridge = [time for time in nccl if time.topology == HOST_BRIDGE]
    swept = powers_of_two(vtrain.read_all_reduces(data), _MIB) if with_vtrain else ()
    return {
        NVLINK: blocks([*by_switch, *swept]),
        PCIE: blocks([*by_bridge, *deepbench.read_all_reduces(data)]),
    }


def learn(
    measured_blocks: Sequence[Block], kind: str, machines: Mapping[str, float]
) -> CollectiveCalibration:
    """One technology from blocks; `machines` are exponents of contention under other host bridges.

    A link measured under a host bridge keeps its own exponent; others take the mean of all machines.
    """
    learned = fit(measured_blocks, kind)
    if kind != PCIE:
        return learned
    behaviour = learned.technologies[kind]
    own = {name: value for name, value in behaviour.contention.items() if name == HOST_BRIDGE}
    contention = {**behaviour.contention, HOST_BRIDGE: fmean([*machines.values(), *own.values()])}
    bridged = {
        link_of(block.device_id, measured_blocks)
        for block in measured_blocks
        if block.topology == HOST_BRIDGE
    }
    links = {
        name: replace(value, contention=own) if name in bridged else value
        for name, value in learned.links.items()
    }
    return CollectiveCalibration({kind: replace(behaviour, contention=contention)}, links)


def left_out(
    measured_blocks: Sequence[Block], kind: str, machines: Mapping[str, float]
) -> Mapping[str, CollectiveCalibration]:
    """For each device type, the calibration learned from all others of its technology."""
    groups = by_device(measured_blocks)
    return {
        name: learn([block for block in measured_blocks if block.device_id != name], kind, machines)
        for name in groups
    }


def network_like(pcie: Behaviour, nvlink: Behaviour) -> Behaviour:
    """How a device drives network cards: steps as over PCI Express, copies as fast as devices can.

    Rates and latencies of a network are facts of its links.
    """
    return replace(
        pcie,
        share=1.0,
        copy_bytes_per_second=nvlink.copy_bytes_per_second,
        low_latency_share=_HALF,
        saturation_bytes=0.0,
        peer_share=1.0,
        in_switch_share=0.0,
        contention={},
    )


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    by_kind = corpus(data)
    waiting = sia.read_waiting(data)
    machines = exponents(waiting)
    every = _learned(by_kind, machines)
    seen = {kind: _spread(part, {block.device_id: every for block in part}) for kind, part in by_kind.items()}
    unseen = _spread(by_kind[NVLINK], left_out(by_kind[NVLINK], NVLINK, machines))
    bridges = {**machines, "l40s": every.links["pcie4-x16"].contention[HOST_BRIDGE]}
    return {
        "data": _data(by_kind, len(waiting)),
        "host_bridges": bridges,
        **_entries(every),
        "spread": {
            "measured": seen,
            "unmeasured": {NVLINK: unseen, PCIE: unseen_spread(bridges), NETWORK: unseen},
        },
    }


def without_vtrain(data: Path) -> Mapping[str, Any]:
    """The entries without vTrain: NVLink by aiconfigurator alone, which has the A100 but no V100."""
    return _entries(_learned(corpus(data, with_vtrain=False), exponents(sia.read_waiting(data))))


def _learned(by_kind: Mapping[str, Sequence[Block]], machines: Mapping[str, float]) -> CollectiveCalibration:
    """All technologies."""
    parts = {kind: learn(part, kind, machines) for kind, part in by_kind.items()}
    network = network_like(parts[PCIE].technologies[PCIE], parts[NVLINK].technologies[NVLINK])
    return merged([*parts.values(), CollectiveCalibration({NETWORK: network}, {})])


def _entries(learned: CollectiveCalibration) -> dict[str, Any]:
    return {
        "technologies": {name: asdict(value) for name, value in learned.technologies.items()},
        "links": {name: asdict(value) for name, value in learned.links.items()},
    }


def _spread(
    measured_blocks: Sequence[Block], learned: Mapping[str, CollectiveCalibration]
) -> dict[str, float]:
    """Quantiles of measured / predicted of large messages."""
    ratios: Floats = np.concatenate(
        [
            (block.seconds / predicted(block, learned[block.device_id]))[block.bytes >= _MIB]
            for block in measured_blocks
        ]
    )
    p10, p50, p90 = np.quantile(ratios, [0.1, 0.5, 0.9]).tolist()
    error = float(np.mean(np.abs(1 / ratios - 1)))
    return {"p10": p10, "p50": p50, "p90": p90, "mean_absolute_error": error, "cases": len(ratios)}


def _data(by_kind: Mapping[str, Sequence[Block]], waiting: int) -> dict[str, Any]:
    used = {
        name: int(sum(len(block.bytes) for block in group))
        for part in by_kind.values()
        for name, group in by_device(part).items()
    }
    sources = [aiconfigurator.SOURCE, vtrain.SOURCE, deepbench.SOURCE, "sia"]
    return {
        "sources": sources,
        "collectives": used,
        "waiting_for_gradients": waiting,
        "software": "NCCL 2.0 (deepbench), 2.27.3 to 2.29.2 (aiconfigurator), not stated (vtrain, sia)",
    }
