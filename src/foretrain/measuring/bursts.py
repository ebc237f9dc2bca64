"""Bursts and idle gaps of a measured node: four resources, each from the series of all its workers.

Utilisation of the GPU (without one, of the CPU), of its memory, network transmit, network receive; bursts are
defined in `prediction.resources.bursts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from foretrain.prediction.resources.bursts import Bursts, bursts_of, within
from foretrain.store.runs import NODE, OTHER_PROCESSES, Resource, ResourceSeries

UTILISATION = (Resource.GPU, Resource.CPU)
MEMORY = (Resource.GPU_MEMORY_BUSY, Resource.MEMORY)
TRANSMIT = (Resource.TRANSMIT,)
RECEIVE = (Resource.RECEIVE,)


def four_resources(
    series: Sequence[ResourceSeries], *, node: int = 0, window: tuple[float, float] | None = None
) -> tuple[Bursts, ...]:
    """The bursts of utilisation, memory, transmit and receive of a node, as far as they were sampled.

    Workers and GPUs are added up or averaged; of several interfaces the one with most traffic counts.
    """
    here = [within(each, window) for each in series if each.node == node]
    described = []
    for choices in (UTILISATION, MEMORY, TRANSMIT, RECEIVE):
        chosen = _of_a_node(here, choices)
        bursts = None if chosen is None else bursts_of(chosen)
        if bursts is not None:
            described.append(bursts)
    return tuple(described)


def series_of(bursts: Bursts, series: Sequence[ResourceSeries]) -> ResourceSeries:
    """The samples that bursts were taken from, over the whole run."""
    of_resource = [each for each in series if each.node == bursts.node and each.resource is bursts.resource]
    if bursts.resource in (Resource.TRANSMIT, Resource.RECEIVE):
        return next(
            each for each in of_resource if (each.label, each.worker) == (bursts.label, bursts.worker)
        )
    chosen = _of_a_node(of_resource, (bursts.resource,))
    assert chosen is not None, "bursts are of a series that has samples"
    return chosen


def total(series: Sequence[ResourceSeries], *, mean: bool = False) -> ResourceSeries:
    """Series of one resource that share their instants, added up (or averaged) into one of the node."""
    seconds = np.unique(np.concatenate([each.seconds for each in series]))
    values = np.zeros(len(seconds))
    for each in series:
        values[np.searchsorted(seconds, each.seconds)] += each.values
    if mean:
        values /= len(series)
    return replace(series[0], worker=NODE, label="", seconds=seconds, values=values)


def _of_a_node(series: Iterable[ResourceSeries], choices: Sequence[Resource]) -> ResourceSeries | None:
    listed = list(series)
    for resource in choices:
        chosen = [
            each
            for each in listed
            if each.resource is resource and len(each.values) and each.label != OTHER_PROCESSES
        ]
        if not chosen:
            continue
        if resource in (Resource.TRANSMIT, Resource.RECEIVE):
            return max(chosen, key=lambda each: float(each.values.sum()))
        return total(chosen, mean=resource in (Resource.GPU, Resource.GPU_MEMORY_BUSY))
    return None
