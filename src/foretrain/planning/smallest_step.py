"""The smallest step of a workload, from which a plan learns its state, tokens and FLOP."""

from __future__ import annotations

from foretrain.errors import InvalidRequest
from foretrain.workloads.graph import Graph
from foretrain.workloads.workload import Workload, graph_at


def smallest_step(workload: Workload) -> tuple[int, Graph]:
    """Its batch and its graph: one sample, or two where one cannot be trained.

    Batch normalisation of a single value a channel cannot: ResNeSt's attention, pooled pyramids.
    """
    try:
        return 1, graph_at(workload, 1)
    except InvalidRequest as alone:
        try:
            return 2, graph_at(workload, 2)
        except InvalidRequest:
            raise alone from None
