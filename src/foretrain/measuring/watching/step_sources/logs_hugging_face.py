"""What the Hugging Face Trainer prints at the end of training; its bar is tqdm's.

{'train_runtime': '2.03', 'train_samples_per_second': '394.1', 'train_steps_per_second': '24.6', ...}
"""

from __future__ import annotations

import re

from foretrain.measuring.watching.step_sources._base import Observation, ProgressParser

_RUNTIME = re.compile(r"'train_runtime': '?(?P<value>[\d.]+)")
_RATE = re.compile(r"'train_steps_per_second': '?(?P<value>[\d.]+)")


class HuggingFaceSummary(ProgressParser):
    """The last line of `Trainer.train`: the mean over all steps, where no bar was shown."""

    name = "Hugging Face Trainer log"
    hint = "{"
    in_place = False
    is_summary = True

    def read(self, line: str) -> Observation | None:
        """The mean step time of the whole training."""
        runtime, rate = _RUNTIME.search(line), _RATE.search(line)
        if runtime is None or rate is None or float(rate["value"]) == 0:
            return None
        steps = round(float(runtime["value"]) * float(rate["value"]))
        return Observation(
            bar="train", done=steps, total=steps, step_seconds=1 / float(rate["value"]), exact=True
        )
