"""Public timings as tables to learn from, with foretrain's own prediction of every row.

PROFET (Keras): the prediction is that of a Keras loop around foretrain's operators, whose constants are
fitted to the rows that the question at hand allows (`calibration/steps/keras_harness.py`). Lambda (TensorFlow
1 and 2, one GPU): foretrain's prediction of the PyTorch network of the same name, as it is. Its FP32 runs are
true FP32 also on Ampere (stock TensorFlow before TF32), except on the A100-PCIE machine, which is 2.5 times
as fast as FP32 allows and so ran TF32.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from calibration.datasets.lambda_labs_scaling import TENSORFLOW_FILE, tensorflow_device
from calibration.datasets.measurements import rows
from calibration.steps.generation_speed import generation_speed
from calibration.steps.keras_harness import HarnessTable, fit_harness
from calibration.steps.profet_pricing import GPUS, PricedStep, measured, priced_steps, table

from foretrain.facts.devices import device
from foretrain.learning.regression.predictions import predicted_seconds
from foretrain.prediction.operators.pricing import Flags, Floats

_ZOO: Mapping[str, tuple[str, int]] = {
    "alexnet": ("alexnet", 224),
    "inception3": ("inception-v3-no-aux", 299),
    "inception4": ("timm:inception_v4", 299),
    "resnet50": ("resnet50", 224),
    "resnet152": ("resnet152", 224),
    "vgg16": ("vgg16", 224),
}
"""foretrain's name of each of Lambda's networks, and the side of its images."""
_TF32_MACHINE = "A100-PCIE"


@dataclass(frozen=True, eq=False)
class Profet:
    """PROFET's steps, priced; `columns` are those of the Keras loop."""

    steps: Sequence[PricedStep]
    columns: HarnessTable

    @property
    def seconds(self) -> Floats:
        """Measured."""
        return measured(self.steps)

    def predicted(self, known: Flags) -> Floats:
        """All steps by a loop whose constants are fitted to the known ones."""
        return fit_harness(self.columns.where(known), self.seconds[known], len(GPUS)).seconds(self.columns)

    def where(self, key: str, value: Any) -> Flags:
        """The steps with a value of `model`, `image_size`, `batch` or `device_id`."""
        return np.array([getattr(item.step, key) == value for item in self.steps])

    def rows(self, chosen: Flags, predicted: Floats, names: Sequence[str]) -> list[dict[str, Any]]:
        """Rows of a table; the image size is PROFET's `dataset`, a name."""
        cells = []
        for index in np.flatnonzero(chosen).tolist():
            step = self.steps[index].step
            row = {
                "model": step.model,
                "dataset": f"{step.image_size}px",
                "image_size": step.image_size,
                "batch": step.batch,
                "device": step.device_id,
                "predicted_seconds": float(predicted[index]),
            }
            cells.append({**{name: row[name] for name in names}, "seconds": step.seconds})
        return cells


def read_profet(data: Path) -> Profet:
    """PROFET's steps with their prices."""
    steps, speed = priced_steps(data), generation_speed(data)
    return Profet(steps, table(steps, {name: speed.of(device(name)) for name in GPUS}))


@dataclass(frozen=True)
class LambdaRow:
    """One of Lambda's TensorFlow runs with replicated variables."""

    machine: str
    device: str
    is_compiled: bool
    precision: str
    model: str
    gpus: int
    batch: int
    seconds: float
    predicted_seconds: float


def read_lambda(data: Path) -> list[LambdaRow]:
    """Training with synthetic data; `predicted_seconds` is of one GPU."""
    return list(_lambda_rows(data))


def _lambda_rows(data: Path) -> Iterator[LambdaRow]:
    known: dict[tuple[str, str, str, int], float] = {}
    for row in rows(data / TENSORFLOW_FILE):
        device_id = tensorflow_device(row["system"])
        is_usable = row["mode"] == "train" and row["data"] == "syn" and row["var_update"] == "replicated"
        if not is_usable or device_id is None or float(row["images_per_sec"] or 0) <= 0:
            continue
        batch, gpus = int(float(row["batch_per_gpu"])), int(row["ngpu"])
        precision = "tf32" if row["prec"] == "fp32" and _TF32_MACHINE in row["system"] else row["prec"]
        key = (row["model"], device_id, precision, batch)
        if key not in known:
            model, side = _ZOO[row["model"]]
            options = {"precision": precision, "image_size": side, "optimizer": "sgd"}
            known[key] = predicted_seconds(model, device_id, batch, 1, options)
        yield LambdaRow(
            re.sub(r"([-_])\d+x", r"\1", row["system"]), device_id, "XLA" in row["system"], row["prec"],
            row["model"], gpus, batch, batch * gpus / float(row["images_per_sec"]), known[key],
        )  # fmt: skip
