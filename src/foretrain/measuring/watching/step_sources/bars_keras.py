"""Keras' progress of an epoch.

12/100 ━━━━━━━━━━━━━━━━━━━━ 3s 25ms/step - loss: 0.5031
100/100 - 3s - 25ms/step - loss: 0.3012
"""

from __future__ import annotations

import re

from foretrain.measuring.watching.step_sources._base import Observation, ProgressParser

_LINE = re.compile(
    r"^\s*(?P<done>\d+)/(?P<total>\d+)\s(?P<whole>-\s)?.*?(?P<time>[\d.]+)(?P<unit>us|ms|s)/(?:step|epoch)\b"
)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class KerasBars(ProgressParser):
    """Lines of `fit` with `verbose` 1 and 2. The printed time is the mean since the start of the epoch."""

    name = "Keras progress bar"
    hint = "/"

    def read(self, line: str) -> Observation | None:
        """What a state of the epoch's bar says."""
        match = _LINE.match(line)
        if match is None:
            return None
        total = int(match["total"])
        return Observation(
            bar=f"epoch/{total}",
            done=int(match["done"]),
            total=total,
            step_seconds=float(match["time"]) * _SECONDS[match["unit"]],
            whole_pass=match["whole"] is not None,
        )
