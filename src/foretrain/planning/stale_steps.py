"""Steps of asynchronous training: stale gradients need more updates to get as far (`convergence.staleness`)."""

from __future__ import annotations

from foretrain.convergence.staleness import KIND, penalty_of
from foretrain.prediction.independent import product
from foretrain.prediction.job import Steps


def with_staleness(steps: Steps, mean_staleness: float) -> Steps:
    """The same job where gradients are so many updates old on average; fresh ones change nothing."""
    if mean_staleness <= 0:
        return steps
    penalty = penalty_of(mean_staleness)
    note = (
        f"gradients are {mean_staleness:.1f} updates old on average: {penalty.p50:.2g} times the updates are "
        f"counted ({KIND}; theory allows {penalty.p10:.2g} to {penalty.p90:.2g})"
    )
    return Steps(
        product(steps.quantiles, penalty), f"{steps.source}, and staleness ({KIND})", (*steps.notes, note)
    )
