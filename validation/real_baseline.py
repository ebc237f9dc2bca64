"""What a textbook says of the same cases: a step on a core of its own, and messages at the nominal rate."""

from __future__ import annotations

from foretrain.prediction.strategies.program import parameter_bytes
from validation.real_calibration import Calibration
from validation.real_cases import CAPS, MICRO_BATCHES, RealCase
from validation.real_prediction import graph_of_model


def textbook_seconds(case: RealCase, known: Calibration) -> float:
    """One worker's step plus what a ring, a server or a pipeline sends at the cap's rate, nothing hidden.

    Ring: 2 (w-1)/w S (FSDP 3 (w-1)/w S), server: 2 w S, pipeline: (m + p - 1)/(m p) of m steps, and its cuts.
    """
    rate = CAPS[case.cap] or float("inf")
    solo, workers = known.solo[case.model], case.workers
    size = parameter_bytes(graph_of_model(case.model))
    if case.strategy == "pipeline":
        slots = MICRO_BATCHES + workers - 1
        return slots * solo.step_seconds / workers + 2 * slots * max(solo.boundary_bytes) / rate
    sent = {
        "ddp": 2 * (workers - 1) / workers * size,
        "fsdp": 3 * (workers - 1) / workers * size,
        "parameter_server": 2 * workers * size,
    }[case.strategy]
    return solo.step_seconds + sent / rate
