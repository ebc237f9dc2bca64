"""What one core takes to turn stored samples into tensors: `python -m experiments.decoding PHOTO`.

The steps are those of the usual training recipes, with Pillow and torchvision: of a JPEG photograph decoding,
a random crop scaled to 224 pixels, a flip and normalisation; of CIFAR-10 a padded crop, a flip and
normalisation; of MNIST normalisation; of stored tokens a slice turned into 64-bit numbers. What is shipped in
`facts/data/input/datasets` was measured with this module.
"""

from __future__ import annotations

import io
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PHOTO_PIXELS = (500, 375)
PHOTO_BYTES = 115_440
"""Size of ImageNet's usual photograph, and the mean of its files."""
TOKENS = 1024
_REPEATS = 15
_AT_ONCE = 20


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """Seconds one core takes for one sample, or one token: median and 10th and 90th percentile of runs."""

    p10: float
    p50: float
    p90: float


def measure_decoding(photo: Path) -> Mapping[str, DecodeTime]:
    """Decode times by data set; `photo` stands for all photographs."""
    import torch

    from foretrain.workloads.readers._torchvision import repair_torchvision

    torch.set_num_threads(1)
    repair_torchvision()
    return {
        "imagenet-jpeg": _seconds(_imagenet(photo)),
        "cifar10": _seconds(_cifar10()),
        "mnist": _seconds(_mnist()),
        "tokens": _seconds(_tokens(), samples=TOKENS),
    }


def _seconds(work: Callable[[], object], samples: int = 1) -> DecodeTime:
    for _ in range(_AT_ONCE):
        work()
    times = []
    for _ in range(_REPEATS):
        start = time.process_time()
        for _ in range(_AT_ONCE):
            work()
        times.append((time.process_time() - start) / _AT_ONCE / samples)
    tenths = statistics.quantiles(times, n=10)
    return DecodeTime(tenths[0], statistics.median(times), tenths[-1])


def _imagenet(photo: Path) -> Callable[[], object]:
    from PIL import Image
    from torchvision import transforms

    file = encoded(Image.open(photo).convert("RGB").resize(PHOTO_PIXELS), PHOTO_BYTES)
    recipe = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    return lambda: recipe(Image.open(io.BytesIO(file)).convert("RGB"))


def _cifar10() -> Callable[[], object]:
    from PIL import Image
    from torchvision import transforms

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    recipe = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    return lambda: recipe(Image.fromarray(pixels))


def _mnist() -> Callable[[], object]:
    from PIL import Image
    from torchvision import transforms

    pixels = np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8)
    recipe = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.13], [0.31])])
    return lambda: recipe(Image.fromarray(pixels))


def _tokens() -> Callable[[], object]:
    import torch

    stored = np.random.default_rng(0).integers(0, 50_000, 100 * TOKENS, dtype=np.uint16)
    return lambda: torch.from_numpy(stored[TOKENS : 2 * TOKENS].astype(np.int64))


def encoded(photo: Any, wanted: int) -> bytes:
    """A photograph as JPEG at the quality whose size is nearest to `bytes`."""
    files = []
    for quality in range(50, 101):
        file = io.BytesIO()
        photo.save(file, "JPEG", quality=quality)
        files.append(file.getvalue())
    return min(files, key=lambda content: abs(len(content) - wanted))


if __name__ == "__main__":
    for name, seconds in measure_decoding(Path(sys.argv[1])).items():
        sys.stdout.write(f"{name}: {seconds.p50:.4g} s ({seconds.p10:.4g} to {seconds.p90:.4g})\n")
