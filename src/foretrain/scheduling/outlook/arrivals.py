"""Jobs that are expected to be submitted: like those seen so far, at the rate seen so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foretrain.scheduling.problem import Job
from foretrain.scheduling.state import State

_FEWEST = 4


def expected_jobs(state: State, count: int, scenario: int) -> tuple[Job, ...]:
    """The next `count` submissions of a scenario: recent jobs drawn again, at random intervals of the mean seen.

    None are expected before a few were seen; the rate falls in a pause much longer than the mean interval.
    """
    recent = seen_jobs(state)
    if len(recent) < _FEWEST or count < 1:
        return ()
    span = recent[-1].submit_seconds - recent[0].submit_seconds
    interval = max(span / (len(recent) - 1), (state.now - recent[-1].submit_seconds) / 3)
    if interval <= 0:
        return ()
    random = np.random.default_rng([scenario, count])
    times = state.now + np.cumsum(random.exponential(interval, count))
    drawn = random.random(count) * len(recent)
    return tuple(
        _again(recent[int(index)], float(submit), number)
        for number, (index, submit) in enumerate(zip(drawn, times, strict=True))
    )


def seen_jobs(state: State) -> Sequence[Job]:
    """Recent submissions; the active jobs where a backend does not keep them."""
    if state.recent:
        return state.recent
    return sorted((each.job for each in state.jobs.values()), key=lambda each: each.submit_seconds)


def _again(job: Job, submit: float, number: int) -> Job:
    return replace(
        job,
        name=f"expected {number}",
        submit_seconds=submit,
        deadline_seconds=submit + job.deadline_seconds - job.submit_seconds,
    )
