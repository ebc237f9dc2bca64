"""Processor time of something run over and over: others on the machine do not lengthen it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

WARM_UP = 2


def settled_seconds(call: Callable[[int], object], runs: int) -> float:
    """The median over so many runs after a warm-up; `call` is told which run it is."""
    taken = []
    for turn in range(WARM_UP + runs):
        start = time.process_time()
        call(turn)
        taken.append(time.process_time() - start)
    return statistics.median(taken[WARM_UP:])
