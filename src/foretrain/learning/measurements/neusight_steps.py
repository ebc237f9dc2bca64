"""NeuSight's whole-model times: FP32 with TF32 off, eager attention, no optimizer, five GPUs.

Forward passes alone are of models in inference mode without a loss; BERT is then a classifier, in training it
predicts tokens. A step is the mean of the five fastest of 25. Training times are of the forward pass without
the loss and of the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import rows

FILE = Path("neusight/end_to_end_fp32.csv")
_MODELS = {
    "gpt2_large": "gpt2-large",
    "gpt3_xl": "gpt3-xl-neusight",
    "gpt3_27": "gpt3-2.7b",
    "opt_13": "opt-1.3b",
    "switchxl4": "switch-xl-4",
}


@dataclass(frozen=True, slots=True)
class MeasuredPass:
    """One whole-model measurement; `model` is the zoo's name."""

    model: str
    device_id: str
    batch: int
    seq_len: int
    is_training: bool
    is_compiled: bool
    seconds: float
    forward_seconds: float
    backward_seconds: float


def read(data: Path) -> tuple[MeasuredPass, ...]:
    """All measurements."""
    return tuple(_passes(data / FILE))


def _passes(file: Path) -> Iterator[MeasuredPass]:
    for row in rows(file):
        is_training = row["mode"] == "train"
        bert = "bert-large" if is_training else "bert-large-classifier"
        yield MeasuredPass(
            model=_MODELS.get(row["model"], bert),
            device_id=device(row["device"].replace("_", " ")).id,
            batch=int(row["batch"]),
            seq_len=int(row["seq_len"]),
            is_training=is_training,
            is_compiled=row["compiled"] == "True",
            seconds=float(row["e2e_ms"]) * 1e-3,
            forward_seconds=float(row["forward_ms"]) * 1e-3,
            backward_seconds=float(row["backward_ms"]) * 1e-3,
        )
