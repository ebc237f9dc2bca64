"""Progress bars: tqdm's (of scripts, the Hugging Face Trainer and PyTorch Lightning), rich's, and Keras'.

    Epoch 0:  45%|████▌     | 45/100 [00:01<00:01, 40.00it/s, v_num=0]
    12it [00:03,  3.90it/s]
    Epoch 0/4  ━━━━━━━━━╸━━━━━━━━━━ 45/100 0:00:01 • 0:00:02 40.12it/s v_num: 0.000
    12/100 ━━━━━━━━━━━━━━━━━━━━ 3s 25ms/step - loss: 0.5031
    100/100 - 3s - 25ms/step - loss: 0.3012

PyTorch Lightning draws with rich where rich is installed.
"""

from __future__ import annotations

import re

from foretrain.measuring.watching.step_sources._base import Observation, ProgressParser

_RATE = r"(?:,\s*(?P<rate>[\d.]+|\?)\s*(?P<unit>s/)?(?P<what>[A-Za-z]*)(?P<per_second>/s)?)?"
_WITH_TOTAL = re.compile(
    r"(?:(?P<title>[^|]*?):?\s+|^)\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)\s*\[[\d:]+<[\d:?]+" + _RATE
)
_WITHOUT_TOTAL = re.compile(r"(?:(?P<title>[^|]*?):\s+|^)(?P<done>\d+)(?:it|step|batch)\w* \[[\d:]+" + _RATE)
_STEP_UNITS = {"", "it", "iter", "step", "steps", "batch", "batches"}
_RICH = re.compile(
    r"(?P<title>[^━╸╺]*?)\s*[━╸╺]+\s+(?P<done>\d+)/(?P<total>\d+)\s+[\d:]+\s+•\s+\S+\s+(?P<rate>[\d.]+)it/s"
)
_KERAS = re.compile(
    r"^\s*(?P<done>\d+)/(?P<total>\d+)\s(?P<whole>-\s)?.*?(?P<time>[\d.]+)(?P<unit>us|ms|s)/(?:step|epoch)\b"
)
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


class TqdmBars(ProgressParser):
    """Bars that count iterations, steps or batches; bars of bytes, files or examples are left out."""

    name = "tqdm progress bar"
    hint = "["

    def read(self, line: str) -> Observation | None:
        """What a state of a bar says."""
        match = _WITH_TOTAL.search(line) or _WITHOUT_TOTAL.search(line)
        if match is None or (match["what"] or "") not in _STEP_UNITS:
            return None
        groups = match.groupdict()
        total = int(groups["total"]) if groups.get("total") else None
        return Observation(
            bar=f"{bar_title(groups['title'] or '')}/{total}",
            done=int(groups["done"]),
            total=total,
            step_seconds=_step_seconds(groups),
        )


def bar_title(title: str) -> str:
    """The title of a bar without what changes from one epoch to the next."""
    return re.sub(r"\d+(?:/\d+)?", "#", title).strip()


def _step_seconds(groups: dict[str, str | None]) -> float | None:
    rate = groups["rate"]
    if rate is None or rate == "?" or float(rate) == 0:
        return None
    return float(rate) if groups["unit"] else 1 / float(rate)


class RichBars(ProgressParser):
    """Bars with a rate in iterations per second."""

    name = "Lightning progress bar"
    hint = "•"

    def read(self, line: str) -> Observation | None:
        """What a state of a bar says."""
        match = _RICH.search(line)
        if match is None:
            return None
        rate, total = float(match["rate"]), int(match["total"])
        return Observation(
            bar=f"{bar_title(match['title'])}/{total}",
            done=int(match["done"]),
            total=total,
            step_seconds=1 / rate if rate else None,
        )


class KerasBars(ProgressParser):
    """Lines of `fit` with `verbose` 1 and 2. The printed time is the mean since the start of the epoch."""

    name = "Keras progress bar"
    hint = "/"

    def read(self, line: str) -> Observation | None:
        """What a state of the epoch's bar says."""
        match = _KERAS.match(line)
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
