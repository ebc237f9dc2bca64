"""Which non-tensor arguments of an operator matter for its cost, by operator.

`LAYOUT` is no argument: it says whether the operator's images lie channels-last in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

LAYOUT = "channels_last"
_CONVOLUTION = (
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
    "output_mask",
    LAYOUT,
)
_POOLING = ("kernel_size", "stride", "padding", "output_size", "ceil_mode", LAYOUT)
_ALONG = ("dim", "dims", "keepdim")

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "aten.convolution": _CONVOLUTION,
    "aten.convolution_backward": _CONVOLUTION,
    "aten.max_pool2d_with_indices": _POOLING,
    "aten.max_pool2d_with_indices_backward": _POOLING,
    "aten.max_pool3d_with_indices": _POOLING,
    "aten.max_pool3d_with_indices_backward": _POOLING,
    "aten.avg_pool2d": _POOLING,
    "aten.avg_pool2d_backward": _POOLING,
    "aten.avg_pool3d": _POOLING,
    "aten.avg_pool3d_backward": _POOLING,
    "aten._adaptive_avg_pool2d": _POOLING,
    "aten._softmax": _ALONG,
    "aten._log_softmax": _ALONG,
    "aten._softmax_backward_data": _ALONG,
    "aten._log_softmax_backward_data": _ALONG,
    "aten.native_layer_norm": ("normalized_shape",),
    "aten.native_layer_norm_backward": ("normalized_shape", "output_mask"),
    "aten.native_group_norm": ("group",),
    "aten.native_group_norm_backward": ("group", "output_mask"),
    "aten.native_batch_norm": ("training", LAYOUT),
    "aten.native_batch_norm_backward": ("train", "output_mask", LAYOUT),
    "aten.sum": _ALONG,
    "aten.mean": _ALONG,
    "foretrain.attention": ("causal", "algorithm", "dropout"),
    "foretrain.attention_backward": ("causal", "algorithm", "dropout"),
    "foretrain.softmax": _ALONG,
    "foretrain.softmax_backward": _ALONG,
    "foretrain.rnn": ("mode", "layers", "bidirectional", "hidden", "batch_first"),
    "foretrain.rnn_backward": ("mode", "layers", "bidirectional", "hidden", "batch_first"),
}
