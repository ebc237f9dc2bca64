"""Scheduling problems small enough to solve by trying everything, drawn by seed."""

from __future__ import annotations

import random

from foretrain.scheduling.problem import Configuration, NodeType, Problem, SubmittedJob, elastic

SMALL = NodeType(name="small", gpu="k80", gpus=1, usd_per_hour=3600.0)
LARGE = NodeType(name="large", gpu="k80", gpus=2, usd_per_hour=2 * 3600.0)
"""One USD per GPU and second."""


def tiny_problem(seed: int, jobs: int = 3, nodes: int = 1) -> Problem:
    """Jobs of tens of seconds on nodes with one or two GPUs, that come within half a minute."""
    draw = random.Random(seed)
    listed = []
    for number in range(jobs):
        one = draw.uniform(10, 30)
        two = one * draw.uniform(0.5, 0.9)
        submit = draw.uniform(0, 30)
        seconds = {
            Configuration("small", 1): one,
            Configuration("large", 1): one,
            Configuration("large", 2): two,
        }
        listed.append(
            SubmittedJob(
                name=f"job-{number}",
                submit_seconds=submit,
                deadline_seconds=submit + draw.uniform(1, 3) * two,
                weight_usd_per_second=draw.uniform(0.5, 5),
                seconds=seconds,
            )
        )
    return Problem(tuple(listed), elastic([SMALL, LARGE], nodes))
