"""Smallest step.

Small steps of a workload, from which a plan learns its state, tokens and FLOP.

Steps of two samples or more are derived from one recording; a step of a single one is recorded by itself, and
only if it is needed.

How large a global batch is tried where nothing says what larger ones would cost in epochs.
"""

from __future__ import annotations

from foretrain.errors import InvalidRequest
from foretrain.facts.running import LARGEST_BATCH, LARGEST_BATCH_TOKENS, default
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import BATCHES, Workload, graph_at


def small_step(workload: Workload) -> Graph:
    """A step of few samples: what a plan has to record anyhow, or of one sample where more cannot be."""
    try:
        return graph_at(workload, BATCHES[0])
    except InvalidRequest:
        return graph_at(workload, 1)


def smallest_step(workload: Workload) -> tuple[int, Graph]:
    """Its batch and its graph: one sample, or two where one cannot be trained.

    Batch normalisation of a single value a channel cannot: ResNeSt's attention, pooled pyramids.
    """
    try:
        return 1, graph_at(workload, 1)
    except InvalidRequest as alone:
        try:
            return BATCHES[0], graph_at(workload, BATCHES[0])
        except InvalidRequest:
            raise alone from None


def largest_batch(workload: Workload, epoch_samples: int | None = None) -> int:
    """As many samples or tokens as people have tried; no more than an epoch has."""
    graph = small_step(workload)
    if graph.tokens:
        tried = max(1, int(default(LARGEST_BATCH_TOKENS).quantiles.p50 * graph.samples // graph.tokens))
    else:
        tried = int(default(LARGEST_BATCH).quantiles.p50)
    return tried if epoch_samples is None else min(tried, epoch_samples)
