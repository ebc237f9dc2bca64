"""What interruptions take from a job, as parts of its time: work done again, and restarts."""

from __future__ import annotations

import math

from foretrain.estimates import Part
from foretrain.prediction.checkpoints import Interrupted, interrupted, youngs_interval
from foretrain.prediction.interruptions import Interruptions, between
from foretrain.prediction.poisson import poisson_quantile

REDOING, RESTARTING = "work done again", "restarts"


def best_interval(save_seconds: float, stops: Interruptions, work: float) -> float:
    """Young's; one checkpoint at the end where nothing interrupts or nothing is to be saved."""
    if math.isinf(stops.between_seconds) or save_seconds == 0:
        return work
    return youngs_interval(save_seconds, stops.between_seconds)


def losses(work: float, save: float, restart: float, stops: Interruptions, lost: Interrupted) -> list[Part]:
    """Work done again and restarts: by the rate of interruptions, and by how many of them happen to come."""
    value = lost.rework_seconds + lost.restart_seconds
    if value == 0:
        return []
    rare, often = (
        interrupted(work, save, restart, between(rate), lost.interval_seconds)
        for rate in (stops.per_day.p10, stops.per_day.p90)
    )
    fewest, most = (poisson_quantile(lost.interruptions, share) for share in (0.1, 0.9))
    below = math.hypot(
        1 - (rare.rework_seconds + rare.restart_seconds) / value, max(0.0, 1 - fewest / lost.interruptions)
    )
    above = math.hypot(
        (often.rework_seconds + often.restart_seconds) / value - 1, max(0.0, most / lost.interruptions - 1)
    )
    both = ((REDOING, lost.rework_seconds), (RESTARTING, lost.restart_seconds))
    return [
        Part(name, seconds, stops.source, below=seconds * min(1.0, below), above=seconds * above)
        for name, seconds in both
    ]
