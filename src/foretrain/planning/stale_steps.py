"""Steps of asynchronous training: stale gradients need more updates to get as far.

The factor is that of `convergence.staleness`. It counts where the length of a job follows from a target; a
length that was given as such is taken at its word, with a note.
"""

from __future__ import annotations

from dataclasses import replace

from foretrain.convergence.staleness import KIND, penalty_of
from foretrain.prediction.independent import product
from foretrain.prediction.job import Steps


def with_staleness(steps: Steps, mean_staleness: float, to_a_target: bool) -> Steps:
    """The same job where gradients are so many updates old on average; fresh ones change nothing."""
    if mean_staleness <= 0:
        return steps
    penalty = penalty_of(mean_staleness)
    bounds = f"{KIND}; theory allows {penalty.p10:.2g} to {penalty.p90:.2g}"
    old = f"gradients are {mean_staleness:.1f} updates old on average:"
    if not to_a_target:
        note = f"{old} to get as far as with fresh ones takes {penalty.p50:.2g} times the updates ({bounds})"
        return replace(steps, notes=(*steps.notes, note))
    note = f"{old} {penalty.p50:.2g} times the updates are counted ({bounds})"
    return Steps(
        product(steps.quantiles, penalty), f"{steps.source}, and staleness ({KIND})", (*steps.notes, note)
    )
