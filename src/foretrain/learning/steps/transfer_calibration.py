"""How far an error carries over from one device or model to another: timm's steps on two GPUs.

Every step is told by a fit that saw neither its family nor, on the RTX 4090, its GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from foretrain.learning.steps import mixed_precision_calibration as mixed
from foretrain.learning.steps.class_times import ClassTimes, class_times
from foretrain.learning.steps.variance_components import variance_components
from foretrain.prediction.cost_models.user_timings import FILE as FILE
from foretrain.prediction.operators.listing import Floats

_WILD = 1.0
"""Residuals beyond e to this power are cut to it: a few networks run kernels no class knows."""


def calibrate(data: Path, graphs: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    times = class_times(mixed.steps(data), graphs)
    residuals = np.clip(np.log(times.measured / _unseen(times)), -_WILD, _WILD)
    models = [step.wanted.model for step in times.steps]
    found = variance_components(residuals, models, times.device_ids.tolist())
    counts = {name: int((times.device_ids == name).sum()) for name in (mixed.FITTED, mixed.JUDGED)}
    return {"data": [{"source": "timm", "steps": counts}], "variance": asdict(found)}


def _unseen(times: ClassTimes) -> Floats:
    """Seconds of each step, its family left out; on the judged GPU too."""
    told = mixed.family_unseen(times)
    there = times.device_ids == mixed.JUDGED
    for fitted, _ in mixed.folds(times):
        families = set(times.families[fitted].tolist())
        left_out = there & np.array([name not in families for name in times.families])
        if left_out.any():
            told[left_out] = mixed.learn(times.where(fitted)).tell(times.where(left_out))
    return told
