"""One pass over a data set: its steps, their time, and what they move between devices."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles
from foretrain.prediction.answer import Prediction


@dataclass(frozen=True, slots=True)
class Epoch:
    """The steps of an epoch, their time, and the bytes of all messages between devices."""

    samples: int
    steps: int
    seconds: Quantiles
    moved_bytes: float


def epoch_of(prediction: Prediction, samples: int) -> Epoch:
    """An epoch of `samples`; the last step may be smaller and counts as a whole one."""
    moved = prediction.parallelism.moved_bytes
    return epoch_in_steps(samples, prediction.update_batch, prediction.step.seconds, moved)


def epoch_in_steps(samples: int, global_batch: int, step: Quantiles, moved_bytes: float) -> Epoch:
    """An epoch of steps of `global_batch` samples."""
    if samples < 1:
        raise InvalidRequest(f"`samples` must be at least 1, got {samples}")
    steps = math.ceil(samples / global_batch)
    return Epoch(samples, steps, step.scale(steps), moved_bytes * steps)
