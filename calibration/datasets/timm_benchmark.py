"""timm's own benchmark of whole steps: training on an RTX 3090, forward passes on an RTX 3090 and 4090.

Mixed precision throughout. Training ran PyTorch 1.12, whose timm computed attention step by step; the forward
passes PyTorch 2.4 with fused attention. `seconds` is from one wait for the GPU to the next. PyTorch 2.9 ran
in plain layout on an RTX 4090 and an RTX PRO 6000 of 300 W, eager and compiled (`torch_2_9`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calibration.datasets.measurements import rows
from calibration.datasets.timm_models import Wanted, architecture_family, name_hash
from foretrain.errors import UnknownName

_TRAINING = {
    False: "timm/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv",
    True: "timm/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv",
}
_INFERENCE = {
    "rtx3090": "timm/benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv",
    "rtx4090": "timm/benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv",
}
_TORCH_2_9 = {
    ("rtx4090", False): "timm/benchmark-infer-amp-nchw-pt291-cu128-rtx4090.csv",
    ("rtx4090", True): "timm/benchmark-infer-amp-nchw-pt291-cu128-rtx4090-dynamo.csv",
    ("rtxpro6000-maxq", False): "timm/benchmark-infer-amp-nchw-pt291-cu130-rtxpro6000maxq.csv",
    ("rtxpro6000-maxq", True): "timm/benchmark-infer-amp-nchw-pt291-cu130-rtxpro6000maxq-dynamo.csv",
}


@dataclass(frozen=True, slots=True)
class TimmStep:
    """One measured step: what ran (`wanted`), at which batch size, where, how long; splits go by `family`."""

    wanted: Wanted
    family: str
    device_id: str
    batch: int
    seconds: float
    compiled: bool = False


def training(data: Path) -> list[TimmStep]:
    """All training steps of models the installed timm still knows."""
    return [
        step
        for channels_last, file in _TRAINING.items()
        for step in _steps(data / file, "train", "rtx3090", channels_last)
    ]


def inference(data: Path) -> list[TimmStep]:
    """All forward passes of models the installed timm still knows."""
    return [
        step
        for device_id, file in _INFERENCE.items()
        for step in _steps(data / file, "infer", device_id, True)
    ]


def torch_2_9(data: Path, every: int = 1) -> list[TimmStep]:
    """Forward passes of PyTorch 2.9, eager and compiled, of every `every`-th model by a hash of the name."""
    return [
        step
        for (device_id, compiled), file in _TORCH_2_9.items()
        for step in _steps(data / file, "infer", device_id, False, compiled, every)
    ]


def _steps(
    file: Path, mode: str, device_id: str, channels_last: bool, compiled: bool = False, every: int = 1
) -> Iterator[TimmStep]:
    forward_only = mode == "infer"
    for row in rows(file):
        if int(name_hash(row["model"]), 16) % every:
            continue
        batch = int(row[f"{mode}_batch_size"])
        try:
            family = architecture_family(row["model"])
        except UnknownName:
            continue
        yield TimmStep(
            wanted=Wanted(
                row["model"],
                "fp16",
                int(row[f"{mode}_img_size"]),
                fused_attention=forward_only,
                channels_last=channels_last,
                forward_only=forward_only,
            ),
            family=family,
            device_id=device_id,
            batch=batch,
            seconds=batch / float(row[f"{mode}_samples_per_sec"]),
            compiled=compiled,
        )
