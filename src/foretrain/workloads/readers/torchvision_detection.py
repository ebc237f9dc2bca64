"""Detection models of torchvision with a real batch.

Which boxes are trained on follows from the values of scores, so that these steps are run, not only traced.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foretrain.workloads.example import Example
from foretrain.workloads.readers._base import BOXES_PER_IMAGE, choose_batch
from foretrain.workloads.readers.python_file import REAL_NOTE
from foretrain.workloads.zoo.catalogue import BuildOptions

DEFAULT_BATCH = 2
"""Images per device in torchvision's recipes (references/detection/train.py)."""
_KEYPOINTS = 17
"""Of a person in COCO."""
_SEED = 0


def detection_example(module: torch.nn.Module, options: BuildOptions) -> Example:
    """A model with random images and boxes, all from one seed; the loss is the sum of the model's losses."""
    transform: Any = module.transform
    size = options.image_size or transform.min_size[-1]
    transform.min_size, transform.max_size = (size,), size
    if getattr(transform, "fixed_size", None) is not None:
        transform.fixed_size = (size, size)
    batch = choose_batch(options, DEFAULT_BATCH)
    generator = torch.Generator().manual_seed(_SEED)
    images = [torch.rand((3, size, size), generator=generator) for _ in range(batch)]
    targets = [_target(module, size, generator) for _ in range(batch)]
    notes = (REAL_NOTE, f"images and {BOXES_PER_IMAGE} boxes in each are random; weights are untrained")
    return Example(module, (images, targets), _sum, samples=batch, notes=notes)


def _sum(losses: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()


def _target(module: torch.nn.Module, size: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Boxes from a twentieth to half of the image in length, with a class, and a mask or key points each."""
    lengths = size * (0.05 + 0.45 * torch.rand((BOXES_PER_IMAGE, 2), generator=generator))
    corners = (size - lengths) * torch.rand((BOXES_PER_IMAGE, 2), generator=generator)
    target = {
        "boxes": torch.cat([corners, corners + lengths], 1),
        "labels": torch.ones(BOXES_PER_IMAGE, dtype=torch.int64),
    }
    heads: Any = getattr(module, "roi_heads", None)
    if getattr(heads, "mask_head", None) is not None:
        target["masks"] = torch.ones((BOXES_PER_IMAGE, size, size), dtype=torch.uint8)
    if getattr(heads, "keypoint_head", None) is not None:
        points = corners[:, None] + lengths[:, None] * torch.rand(
            (BOXES_PER_IMAGE, _KEYPOINTS, 2), generator=generator
        )
        target["keypoints"] = torch.cat([points, torch.ones((*points.shape[:2], 1))], 2)
    return target
