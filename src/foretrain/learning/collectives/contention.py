"""How devices under one host bridge share it, from what steps waited for their gradients.

A ring all-reduce among d devices moves 2(d-1)/d of the gradients through each. Against a pair it is slower by
the factor of its rate, (2/d)^c, so

    c = log( t_d / t_2 · d / (2(d-1)) ) / log(d/2)

whatever the size of the gradients. A machine's exponent is the median over its models and numbers of devices.
Machines differ widely, around the 1 of an ideal shared bus: one that was not measured takes their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from statistics import fmean, median

import numpy as np

from foretrain.learning.measurements.sia_sync import Waiting

_DEVICES = (2, 4, 8)


def exponents(found: Sequence[Waiting]) -> Mapping[str, float]:
    """The exponent of each machine, at least 0."""
    pairs = {(item.cluster, item.model): item.seconds for item in found if item.devices == 2}
    each: dict[str, list[float]] = {}
    for item in found:
        if item.devices > 2:
            moved = item.devices / (2 * (item.devices - 1))
            slower = item.seconds / pairs[item.cluster, item.model] * moved
            each.setdefault(item.cluster, []).append(log(slower) / log(item.devices / 2))
    return {name: max(0.0, median(values)) for name, values in each.items()}


def unseen_spread(machines: Mapping[str, float]) -> dict[str, float]:
    """Quantiles of measured / predicted of 2, 4 and 8 devices of a machine told from the others."""
    ratios = [
        (devices / 2) ** (own - fmean(value for other, value in machines.items() if other != name))
        for name, own in machines.items()
        for devices in _DEVICES
    ]
    p10, p50, p90 = np.quantile(ratios, [0.1, 0.5, 0.9]).tolist()
    return {"p10": p10, "p50": p50, "p90": p90, "cases": len(ratios)}
