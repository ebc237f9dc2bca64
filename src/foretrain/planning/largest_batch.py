"""How large a global batch is tried where nothing says what larger ones would cost in epochs."""

from __future__ import annotations

from foretrain.facts.running import LARGEST_BATCH, LARGEST_BATCH_TOKENS, default
from foretrain.planning.smallest_step import small_step
from foretrain.workloads.workload import Workload


def largest_batch(workload: Workload, epoch_samples: int | None = None) -> int:
    """As many samples or tokens as people have tried; no more than an epoch has."""
    graph = small_step(workload)
    if graph.tokens:
        tried = max(1, int(default(LARGEST_BATCH_TOKENS).quantiles.p50 * graph.samples // graph.tokens))
    else:
        tried = int(default(LARGEST_BATCH).quantiles.p50)
    return tried if epoch_samples is None else min(tried, epoch_samples)
