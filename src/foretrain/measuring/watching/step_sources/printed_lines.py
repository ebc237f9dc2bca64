"""Lines that are printed once: the summary of the Hugging Face Trainer, and those of scripts of their own.

{'train_runtime': '2.03', 'train_samples_per_second': '394.1', 'train_steps_per_second': '24.6', ...}
step 120/1000 loss 0.35 0.35 s/step
iter 10: loss 2.3012, time 120.45ms
iteration 100/ 500000 | elapsed time per iteration (ms): 1203.4 | ...
Epoch: [0][ 10/391]  Time 0.123 ( 0.456)  Loss 6.9
"""

from __future__ import annotations

import re

from foretrain.measuring.watching.step_sources._base import Observation, ProgressParser

_TRAIN_RUNTIME = re.compile(r"'train_runtime': '?(?P<value>[\d.]+)")
_TRAIN_RATE = re.compile(r"'train_steps_per_second': '?(?P<value>[\d.]+)")
_COUNT = re.compile(
    r"\b(?P<word>global[_ ]step|step|iteration|iter|batch|it)\b[\s:=#\[(]*(?P<done>\d+)"
    r"(?:\s*(?:/|of)\s*(?P<total>\d+))?",
    re.IGNORECASE,
)
_IN_EPOCH = re.compile(r"\[\s*(?P<epoch>\d+)\]\s*\[\s*(?P<done>\d+)/\s*(?P<total>\d+)\]")
_UNITS = r"us|µs|ms|milliseconds|s|sec|secs|seconds"
_PER_STEP = re.compile(
    rf"(?P<time>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>{_UNITS})\s*(?:/|per)\s*(?:step|iteration|iter|it|batch)\b",
    re.IGNORECASE,
)
_NAMED_TIME = re.compile(
    r"\b(?:elapsed time per iteration|(?:step|iter|iteration|batch)[_ ]?time|time|dt)\b"
    rf"\s*(?:\((?P<before>{_UNITS})\))?\s*[:=]?\s*(?P<time>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>{_UNITS})?(?![\w:])",
    re.IGNORECASE,
)
_RATE = re.compile(r"(?P<rate>\d+(?:\.\d+)?)\s*(?:it|iter|steps?|batch(?:es)?)/s(?:ec)?\b", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "milliseconds": 1e-3}


class HuggingFaceSummary(ProgressParser):
    """The last line of `Trainer.train`: the mean over all steps, where no bar was shown."""

    name = "Hugging Face Trainer log"
    hint = "{"
    in_place = False
    is_summary = True

    def read(self, line: str) -> Observation | None:
        """The mean step time of the whole training."""
        runtime, rate = _TRAIN_RUNTIME.search(line), _TRAIN_RATE.search(line)
        if runtime is None or rate is None or float(rate["value"]) == 0:
            return None
        steps = round(float(runtime["value"]) * float(rate["value"]))
        return Observation(
            bar="train", done=steps, total=steps, step_seconds=1 / float(rate["value"]), exact=True
        )


class PrintedLines(ProgressParser):
    """A count of steps with a time, a rate, or nothing but the instant of the line."""

    name = "printed lines"
    hint = ""
    in_place = False

    def read(self, line: str) -> Observation | None:
        """The count of steps, and the time of a step where it is printed."""
        count = _IN_EPOCH.search(line) or _COUNT.search(line)
        if count is None:
            return None
        total = int(count["total"]) if count["total"] else None
        step_seconds = _step_seconds(line)
        return Observation(
            bar=f"{count.groupdict().get('word', 'epoch').lower()}/{total}",
            done=int(count["done"]),
            total=total,
            step_seconds=step_seconds,
            exact=step_seconds is not None,
        )


def _step_seconds(line: str) -> float | None:
    per_step = _PER_STEP.search(line)
    if per_step is not None:
        return float(per_step["time"]) * _factor(per_step["unit"])
    named = _NAMED_TIME.search(line)
    if named is not None:
        return float(named["time"]) * _factor(named["unit"] or named["before"])
    rate = _RATE.search(line)
    return 1 / float(rate["rate"]) if rate is not None and float(rate["rate"]) > 0 else None


def _factor(unit: str | None) -> float:
    """Seconds in a unit; a time without unit is in seconds."""
    return _SECONDS.get((unit or "s").lower(), 1.0)
