"""Scheduling problems small enough for brute force, all jobs known from the start."""

from __future__ import annotations

import random
from functools import cache

from foretrain.scheduling.problem import Configuration, NodeType, Problem, SubmittedJob, elastic

_SMALL = NodeType(name="small", gpu="k80", gpus=1, usd_per_hour=3600.0)
_LARGE = NodeType(name="large", gpu="k80", gpus=2, usd_per_hour=2 * 3600.0)
_COUNT = 20


@cache
def tiny_problems() -> tuple[Problem, ...]:
    """Three jobs of tens of seconds on one or two nodes with one or two GPUs, 1 USD per GPU-second."""
    return tuple(_problem(seed, nodes=1 + seed % 2) for seed in range(_COUNT))


def _problem(seed: int, nodes: int) -> Problem:
    draw = random.Random(seed)
    jobs = []
    for number in range(3):
        one = draw.uniform(10, 30)
        two = one * draw.uniform(0.5, 0.9)
        seconds = {
            Configuration("small", 1): one,
            Configuration("large", 1): one,
            Configuration("large", 2): two,
        }
        jobs.append(
            SubmittedJob(
                name=f"job-{number}",
                submit_seconds=0.0,
                deadline_seconds=draw.uniform(1, 3) * two,
                weight_usd_per_second=draw.uniform(0.5, 5),
                seconds=seconds,
            )
        )
    return Problem(tuple(jobs), elastic([_SMALL, _LARGE], nodes))
