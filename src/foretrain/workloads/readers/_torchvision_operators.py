"""Operators of torchvision's detection models, for builds that lack them.

The kernels stand in for torchvision's own where its library does not load, as with a CPU build of torch from
another source: non-maximum suppression as defined, and RoI align with one sample in the middle of each bin.
Shapes do not depend on the samples of a bin.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def declare_operators() -> torch.library.Library:
    """Declare what `import torchvision` and its detection models need; the caller keeps the library alive."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width,"
        " int sampling_ratio, bool aligned) -> Tensor"
    )
    library.define(
        "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, int pooled_height,"
        " int pooled_width, int batch_size, int channels, int height, int width, int sampling_ratio,"
        " bool aligned) -> Tensor"
    )
    library.impl("nms", _nms, "CPU")
    library.impl("roi_align", _roi_align, "CPU")
    library.impl("roi_align", _roi_align_shape, "Meta")
    library.impl("_roi_align_backward", _roi_align_backward, "Meta")
    torch.library.register_autograd(
        "torchvision::roi_align", _roi_align_gradient, setup_context=_keep_for_gradient, lib=library
    )
    return library


def _nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Boxes in order of their scores, without those that overlap an earlier one too much."""
    with torch._C.DisableTorchFunction():
        order = scores.argsort(descending=True, stable=True)
        left, top, right, bottom = boxes[order].unbind(1)
        areas = (right - left) * (bottom - top)
        kept = []
        alive = torch.ones(len(order), dtype=torch.bool)
        for index in range(len(order)):
            if not alive[index]:
                continue
            kept.append(index)
            width = (torch.minimum(right[index], right) - torch.maximum(left[index], left)).clamp(min=0)
            height = (torch.minimum(bottom[index], bottom) - torch.maximum(top[index], top)).clamp(min=0)
            common = width * height
            alive &= common <= iou_threshold * (areas[index] + areas - common)
        return order[torch.tensor(kept, dtype=torch.int64)]


def _roi_align(
    features: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Bilinear samples of the features in the middle of each bin of each region."""
    del sampling_ratio
    with torch._C.DisableTorchFunction():
        height, width = features.shape[2:]
        shift = 0.5 if aligned else 0.0
        image, left, top, right, bottom = rois.float().unbind(1)
        xs = _middles(left, right, pooled_width) * spatial_scale - shift
        ys = _middles(top, bottom, pooled_height) * spatial_scale - shift
        across = (2 * xs / max(1, width - 1) - 1)[:, None, :].expand(-1, pooled_height, -1)
        down = (2 * ys / max(1, height - 1) - 1)[:, :, None].expand(-1, -1, pooled_width)
        pooled = features.new_zeros((len(rois), features.shape[1], pooled_height, pooled_width))
        for index in range(features.shape[0]):
            chosen = (image == index).nonzero().squeeze(1)
            if len(chosen):
                grid = torch.stack([across[chosen], down[chosen]], -1).reshape(1, -1, pooled_width, 2)
                samples = functional.grid_sample(
                    features[index : index + 1].float(), grid, align_corners=True
                )
                by_roi = samples[0].reshape(-1, len(chosen), pooled_height, pooled_width).transpose(0, 1)
                pooled[chosen] = by_roi.to(pooled.dtype)
        return pooled


def _roi_align_shape(
    features: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, *_: Any
) -> Tensor:
    del spatial_scale
    return features.new_empty((rois.shape[0], features.shape[1], pooled_height, pooled_width))


def _middles(start: Tensor, end: Tensor, bins: int) -> Tensor:
    return start[:, None] + (end - start)[:, None] * (torch.arange(bins) + 0.5) / bins


def _roi_align_backward(grad: Tensor, rois: Tensor, *sizes: Any) -> Tensor:
    """The shape of the gradient of the features; a step is run forward only."""
    del rois
    _, _, _, batch, channels, height, width, _, _ = sizes
    return grad.new_empty((batch, channels, height, width))


def _keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    features, rois, *choices = inputs
    ctx.save_for_backward(rois)
    ctx.choices, ctx.shape = choices, tuple(features.shape)


def _roi_align_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (rois,) = ctx.saved_tensors
    scale, height, width, ratio, aligned = ctx.choices
    gradient = torch.ops.torchvision._roi_align_backward(
        grad, rois, scale, height, width, *ctx.shape, ratio, aligned
    )
    return gradient, None, None, None, None, None, None
