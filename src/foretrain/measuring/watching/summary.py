"""Step times of a run as one summary: warm-up dropped, median, percentiles, variation, input share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foretrain.store.runs import Floats, StepSummary, WorkerSteps

_WARM_UP_SHARE = 0.1
_LEAST_WARM_UP, _MOST_WARM_UP = 1, 10
_SLOW = 1.5
"""A step at the start counts as warm-up while it takes this many times the median of the later half."""


def summarise(steps: Sequence[WorkerSteps], source: str) -> StepSummary | None:
    """The steady steps of all workers together; None without a step.

    `steps` of the summary counts the steps of the worker with most of them: workers take a step at a time
    together. The coefficient of variation is the standard deviation over the mean.
    """
    timed = [worker for worker in steps if len(worker.seconds)]
    if not timed:
        return None
    dropped = max(warm_up_steps(worker.seconds) for worker in timed)
    kept = [min(dropped, len(worker.seconds) - 1) for worker in timed]
    steady = [worker.seconds[start:] for worker, start in zip(timed, kept, strict=True)]
    seconds = np.concatenate(steady)
    p10, p50, p90 = np.quantile(seconds, (0.1, 0.5, 0.9))
    return StepSummary(
        seconds=float(p50),
        p10_seconds=float(p10),
        p90_seconds=float(p90),
        steps=max(map(len, steady)),
        warm_up_steps=dropped,
        variation=float(seconds.std() / seconds.mean()) if seconds.mean() > 0 else 0.0,
        input_share=_input_share(timed, kept),
        source=source,
    )


def warm_up_steps(seconds: Floats) -> int:
    """How many first steps to drop: a tenth (1 to 10), and slow ones after them, up to half of all steps."""
    count = len(seconds)
    if count < 3:
        return 0
    dropped = min(max(math.ceil(_WARM_UP_SHARE * count), _LEAST_WARM_UP), _MOST_WARM_UP)
    steady = float(np.median(seconds[count // 2 :]))
    while dropped < count // 2 and seconds[dropped] > _SLOW * steady:
        dropped += 1
    return dropped


def _input_share(timed: Sequence[WorkerSteps], starts: Sequence[int]) -> float | None:
    """The time spent waiting for input over all time, of the workers that report it."""
    known = [
        (float(worker.input_seconds[start:].sum()), float(worker.seconds[start:].sum()))
        for worker, start in zip(timed, starts, strict=True)
        if len(worker.input_seconds) == len(worker.seconds)
    ]
    total = sum(seconds for _, seconds in known)
    return min(1.0, sum(waiting for waiting, _ in known) / total) if total > 0 else None
