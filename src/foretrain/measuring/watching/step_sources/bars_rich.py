"""Bars drawn with rich, as PyTorch Lightning does where rich is installed.

Epoch 0/4  ━━━━━━━━━╸━━━━━━━━━━ 45/100 0:00:01 • 0:00:02 40.12it/s v_num: 0.000
"""

from __future__ import annotations

import re

from foretrain.measuring.watching.step_sources._base import Observation, ProgressParser
from foretrain.measuring.watching.step_sources.bars_tqdm import bar_title

_LINE = re.compile(
    r"(?P<title>[^━╸╺]*?)\s*[━╸╺]+\s+(?P<done>\d+)/(?P<total>\d+)\s+[\d:]+\s+•\s+\S+\s+(?P<rate>[\d.]+)it/s"
)


class RichBars(ProgressParser):
    """Bars with a rate in iterations per second."""

    name = "Lightning progress bar"
    hint = "•"

    def read(self, line: str) -> Observation | None:
        """What a state of a bar says."""
        match = _LINE.search(line)
        if match is None:
            return None
        rate, total = float(match["rate"]), int(match["total"])
        return Observation(
            bar=f"{bar_title(match['title'])}/{total}",
            done=int(match["done"]),
            total=total,
            step_seconds=1 / rate if rate else None,
        )
