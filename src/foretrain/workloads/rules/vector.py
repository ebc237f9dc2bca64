"""Everything that is bound by memory: pointwise chains, reductions, norms, copies, look-ups, updates.

FLOP here are elements times a small count; the traffic is what matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from foretrain.workloads.graph import Nature, Phase, Spec
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.rules.site import Rule, Site

_NO_KERNEL = (
    "aten.empty aten.empty_like aten.new_empty aten.empty_strided aten.new_empty_strided aten.detach "
    "aten.detach_ aten.alias aten.set_ aten.resize_ aten.view_as_real aten.view_as_complex "
    "aten.as_strided_"
).split()
_FILLS = (
    "aten.zeros aten.zeros_like aten.new_zeros aten.ones aten.ones_like aten.new_ones aten.full "
    "aten.full_like aten.new_full aten.fill_ aten.zero_ aten.arange aten.linspace aten.eye "
    "aten.scalar_tensor aten.tril_indices aten.fill aten._efficientzerotensor"
).split()
_COPIES = (
    "aten.clone aten._to_copy aten.copy aten.cat aten.stack aten.constant_pad_nd aten.roll "
    "aten.flip aten.repeat aten.slice_backward aten.select_backward aten.slice_scatter "
    "aten.select_scatter aten.diagonal_backward aten.unfold_backward aten.reflection_pad2d "
    "aten.reflection_pad2d_backward aten.replication_pad2d aten.replication_pad2d_backward "
    "aten.reflection_pad1d aten.reflection_pad1d_backward aten.pixel_shuffle aten.pixel_unshuffle "
    "aten.channel_shuffle aten.tril aten.triu aten.im2col aten.col2im aten.split_with_sizes_copy "
    "aten.as_strided_scatter aten.contiguous aten.block_diag aten.diagonal_scatter aten.glu "
    "aten.glu_backward aten.diagonal_copy foretrain.dequantise"
).split()
_GATHERS = (
    "aten.index aten.index_select aten.gather aten.take aten.take_along_dim aten.masked_select "
    "aten._unsafe_index aten.masked_scatter_backward"
).split()
_SCATTERS = (
    "aten.index_put aten.index_put_ aten._index_put_impl_ aten._unsafe_index_put aten.scatter "
    "aten.scatter_ aten.scatter_add aten.scatter_add_ aten.index_add aten.index_add_ aten.scatter_reduce "
    "aten.index_copy aten.index_select_backward aten.masked_scatter aten.index_fill_"
).split()
_REDUCTIONS = (
    "aten.sum aten.mean aten.amax aten.amin aten.max aten.min aten.argmax aten.argmin aten.prod aten.norm "
    "aten.linalg_vector_norm aten.var aten.var_mean aten.std aten.std_mean aten.logsumexp aten.any "
    "aten.all aten.count_nonzero aten.nansum aten.mean.dim aten.bincount aten.aminmax "
    "aten._amp_update_scale_ aten.histc aten._is_all_true aten._is_any_true"
).split()
_NORMS = (
    "aten.native_batch_norm aten.native_batch_norm_backward aten.native_layer_norm "
    "aten.native_layer_norm_backward aten.native_group_norm aten.native_group_norm_backward "
    "aten._native_batch_norm_legit aten._batch_norm_with_update aten.batch_norm_backward "
    "aten._fused_rms_norm aten._fused_rms_norm_backward aten.cudnn_batch_norm aten.miopen_batch_norm "
    "aten._weight_norm_interface aten._weight_norm_interface_backward "
    "aten._native_batch_norm_legit_no_training"
).split()
_SOFTMAXES = (
    "foretrain.softmax foretrain.softmax_backward "
    "aten._softmax aten._softmax_backward_data aten._log_softmax aten._log_softmax_backward_data "
    "aten._safe_softmax"
).split()
_POOLS = (
    "aten.max_pool2d_with_indices aten.max_pool2d_with_indices_backward aten.avg_pool2d "
    "aten.avg_pool2d_backward aten._adaptive_avg_pool2d aten._adaptive_avg_pool2d_backward "
    "aten.adaptive_max_pool2d aten.adaptive_max_pool2d_backward aten.max_pool3d_with_indices "
    "aten.max_pool3d_with_indices_backward aten.avg_pool3d aten.avg_pool3d_backward "
    "aten._adaptive_avg_pool3d aten._adaptive_avg_pool3d_backward aten.avg_pool1d "
    "aten.adaptive_avg_pool1d"
).split()
_LOOPING_RESAMPLES = (
    "aten.upsample_bilinear2d aten.upsample_bicubic2d aten.upsample_linear1d aten.upsample_trilinear3d"
).split()
_RESAMPLES = (
    "aten.upsample_nearest2d aten.upsample_nearest2d_backward aten.upsample_bilinear2d "
    "aten.upsample_bilinear2d_backward aten.upsample_bicubic2d aten.upsample_bicubic2d_backward "
    "aten.upsample_nearest1d aten.upsample_nearest1d_backward aten.upsample_linear1d "
    "aten.upsample_linear1d_backward aten.upsample_nearest3d aten.upsample_nearest3d_backward "
    "aten.upsample_trilinear3d aten.upsample_trilinear3d_backward aten.grid_sampler_2d "
    "aten.grid_sampler_2d_backward aten._upsample_nearest_exact2d aten._upsample_bicubic2d_aa "
    "aten._upsample_bilinear2d_aa aten._upsample_bicubic2d_aa_backward aten.affine_grid_generator "
    "aten._upsample_nearest_exact2d_backward aten._upsample_bilinear2d_aa_backward"
).split()
_DROPOUTS = ("aten.native_dropout aten.native_dropout_backward aten._fused_dropout").split()
_RANDOMS = (
    "aten.bernoulli aten.bernoulli_ aten.rand aten.rand_like aten.randn aten.randn_like aten.normal_ "
    "aten.uniform_ aten.randint aten.multinomial aten.randperm aten.exponential_ aten.normal aten.random_ "
    "aten.trunc_normal_"
).split()
_SORTS = (
    "aten.sort aten.topk aten.argsort aten.kthvalue aten.unique aten._unique2 aten.msort aten.nonzero"
).split()
_SCANS = ("aten.cumsum aten.cumprod aten.cummax aten.cummin aten.logcumsumexp aten.cumsum_").split()
_PICKS_TARGETS = (
    "aten.nll_loss_forward aten.nll_loss_backward aten.nll_loss2d_forward aten.nll_loss2d_backward"
).split()
_LOSSES = (
    "aten._ctc_loss aten._ctc_loss_backward aten.multi_margin_loss aten.multilabel_margin_loss_forward"
).split()
_OTHER_POINTWISE = (
    "aten.hardtanh_backward aten.leaky_relu_backward aten.mse_loss_backward aten.elu_backward "
    "aten.softplus_backward aten.hardswish_backward aten.hardsigmoid_backward aten.log_sigmoid_backward "
    "aten.log_sigmoid_forward aten.mish_backward aten.hardshrink_backward aten.softshrink_backward "
    "aten.gelu_backward aten.silu_backward aten.sigmoid_backward aten.tanh_backward aten.hardtanh_ "
    "aten._amp_foreach_non_finite_check_and_unscale_ aten.one_hot aten.masked_fill_ aten.nan_to_num_ "
    "aten._prelu_kernel aten._prelu_kernel_backward aten.rrelu_with_noise aten.bucketize aten.isin "
    "aten.embedding_renorm_ aten.rrelu_with_noise_backward aten.gelu_ aten.silu_ aten.relu_ "
    "aten.threshold_backward aten.mse_loss aten.smooth_l1_loss aten.l1_loss aten.huber_loss "
    "aten.binary_cross_entropy aten.binary_cross_entropy_backward aten.binary_cross_entropy_with_logits "
    "aten.smooth_l1_loss_backward aten.huber_loss_backward aten._fft_r2c aten._fft_c2r aten._fft_c2c "
    "aten.complex aten.polar aten.searchsorted aten._thnn_fused_lstm_cell aten._conj aten._conj_physical "
    "aten._local_response_norm aten.floor_divide aten.hardswish aten.hardswish_ "
    "aten.hardsigmoid_ "
    "aten.leaky_relu_ aten.elu_ aten.mish_ aten.celu_ aten.selu_"
).split()


def _work(site: Site, kind: Kind, flop_per_element: float = 1.0, **dims: int) -> tuple[Work, ...]:
    elements = site.elements
    return (
        Work(
            kind=kind,
            direction=site.direction,
            dims={"elements": elements, **dims},
            dtype=site.dtype,
            flop=flop_per_element * elements,
            read_bytes=site.read_bytes,
            write_bytes=site.write_bytes,
        ),
    )


def _nothing(site: Site) -> tuple[Work, ...]:
    return (Work(Kind.VIEW, site.direction, {}, site.dtype, 0.0, 0.0, 0.0, kernels=0),)


def _fill(site: Site) -> tuple[Work, ...]:
    written = {"elements": site.elements}
    return (Work(Kind.COPY, site.direction, written, site.dtype, 0.0, 0.0, site.write_bytes),)


def _copy(site: Site) -> tuple[Work, ...]:
    return _work(site, Kind.COPY, 0.0)


def _overwrite(site: Site) -> tuple[Work, ...]:
    """A copy into a tensor, whose old values it does not read."""
    (work,) = _copy(site)
    return (replace(work, read_bytes=min(work.read_bytes, site.input(1).bytes)),)


def _gather(site: Site) -> tuple[Work, ...]:
    """Reads only what it picks, and where to pick it."""
    picked = site.output()
    indices = sum(spec.bytes for spec in site.inputs[1:] if spec is not None and "int" in spec.dtype)
    dims = {"elements": picked.elements}
    work = Work(Kind.GATHER, site.direction, dims, site.dtype, 0.0, picked.bytes + indices, picked.bytes)
    return (work,)


def _distances(site: Site) -> tuple[Work, ...]:
    """The distance of every row of one operand to every row of another: difference, power and sum of each."""
    return _work(site, Kind.REDUCTION, 3.0 * site.input(0).shape[-1], **_rows(site, site.output()))


def _suppression(site: Site) -> tuple[Work, ...]:
    """Non-maximum suppression: the overlap of every pair of boxes, at about ten operations."""
    boxes = site.input(0).shape[0]
    (work,) = _work(site, Kind.SORT, 0.0)
    return (replace(work, flop=10.0 * boxes * boxes / 2),)


def _region_align(site: Site) -> tuple[Work, ...]:
    """Four bilinear samples in each bin of each region, of four values each."""
    return _work(site, Kind.RESAMPLE, 32.0)


def _scatter(site: Site) -> tuple[Work, ...]:
    return _work(site, Kind.GATHER, 0.0)


def _embedding(site: Site) -> tuple[Work, ...]:
    table, indices, rows = site.input(0), site.input(1), site.output()
    dims = {"rows": table.shape[0], "width": table.shape[-1], "tokens": indices.elements}
    work = Work(
        Kind.EMBEDDING, site.direction, dims, table.dtype, 0.0, rows.bytes + indices.bytes, rows.bytes
    )
    return (work,)


def _embedding_backward(site: Site) -> tuple[Work, ...]:
    """Zeroes the whole gradient of the table, then adds the rows that were used."""
    grad, indices, table = site.input(0), site.input(1), site.output()
    dims = {"rows": table.shape[0], "width": table.shape[-1], "tokens": indices.elements}
    work = Work(
        Kind.EMBEDDING,
        Direction.BACKWARD,
        dims,
        grad.dtype,
        float(grad.elements),
        grad.bytes + indices.bytes,
        table.bytes + grad.bytes,
        kernels=2,
    )
    return (work,)


def _embedding_bag(site: Site) -> tuple[Work, ...]:
    """Reads a row for every id, writes their sum for every bag."""
    table, indices, bags = site.input(0), site.input(1), site.output()
    dims = {"rows": table.shape[0], "width": table.shape[-1], "tokens": indices.elements}
    read = indices.elements * table.shape[-1] * (table.bytes // max(1, table.elements)) + indices.bytes
    flop = float(indices.elements * table.shape[-1])
    return (Work(Kind.EMBEDDING, site.direction, dims, table.dtype, flop, read, bags.bytes),)


def _embedding_bag_backward(site: Site) -> tuple[Work, ...]:
    """Zeroes the whole gradient of the table, then adds the gradient of a bag to the row of each id."""
    grad, indices, table = site.input(0), site.input(1), site.output()
    width = table.shape[-1]
    dims = {"rows": table.shape[0], "width": width, "tokens": indices.elements}
    added = indices.elements * width * (grad.bytes // max(1, grad.elements))
    return (
        Work(
            Kind.EMBEDDING,
            Direction.BACKWARD,
            dims,
            grad.dtype,
            float(indices.elements * width),
            added + indices.bytes,
            table.bytes + added,
            kernels=2,
        ),
    )


def _rows(site: Site, widest: Spec) -> dict[str, int]:
    """How many rows are reduced, and how long each is."""
    results = [spec.elements for spec in site.outputs if spec is not None]
    rows = min(results) if results else 1
    return {"rows": rows, "length": max(1, widest.elements // max(1, rows))}


def _reduction(site: Site) -> tuple[Work, ...]:
    return _work(site, Kind.REDUCTION, 1.0, **_rows(site, site.input(0)))


def _softmax(site: Site) -> tuple[Work, ...]:
    shape = site.input(0).shape or (1,)
    length = shape[site.settings.get("dim", -1)]
    rows, of_log = site.elements // max(1, length), int("log_softmax" in site.name)
    return _work(site, Kind.SOFTMAX, 5.0, rows=rows, length=length, of_log=of_log)


_SECTOR_BYTES = 32
"""The least that a GPU reads from memory or writes to it."""


def _target_loss(site: Site) -> tuple[Work, ...]:
    """Reads one probability of each row; backward writes zeros, and one gradient of each row."""
    targets = next(spec for spec in site.inputs if spec is not None and "int" in spec.dtype)
    picked = float(_SECTOR_BYTES * targets.elements)
    is_backward = "backward" in site.name
    (work,) = _work(site, Kind.LOSS, 1.0)
    read = targets.bytes + (0.0 if is_backward else picked)
    return (replace(work, read_bytes=read, write_bytes=site.write_bytes + (picked if is_backward else 0.0)),)


def _norm(site: Site) -> tuple[Work, ...]:
    shape = site.input(0).shape
    if "layer_norm" in site.name or "rms_norm" in site.name:
        length = math.prod(site.settings.get("normalized_shape") or shape[-1:])
    elif "group_norm" in site.name:
        length = site.elements // max(1, shape[0] * int(site.settings["group"]))
    else:
        length = site.elements // max(1, shape[1] if len(shape) > 1 else 1)
    if _is_frozen(site):
        (work,) = _pointwise(site)
        return (replace(work, dims={**work.dims, "library": 1}),)
    flop = 8.0 if "backward" in site.name else 5.0
    rows = site.elements // max(1, length)
    is_batch = int("batch_norm" in site.name)
    layout = site.channels_last
    return _work(
        site, Kind.NORMALISATION, flop, rows=rows, length=length, over_batch=is_batch, channels_last=layout
    )


def _is_frozen(site: Site) -> bool:
    """Whether a batch norm uses statistics it has: then it only scales and shifts."""
    return site.name.endswith("_no_training") or site.settings.get("training") is False


def _pool(site: Site) -> tuple[Work, ...]:
    """A window for each output, forward; as many again where gradients go back through them."""
    kernel = math.prod(site.settings.get("kernel_size") or [1])
    windows = min(site.input(0).elements, site.output().elements)
    dims = {"kernel": kernel, "windows": windows, "channels_last": site.channels_last}
    return _work(site, Kind.POOLING, float(max(1, kernel)), **dims)


def _looping_resample(site: Site) -> tuple[Work, ...]:
    """A thread for each position of an output image loops over all samples and channels, unless these are
    last in memory (PyTorch, UpSampleBilinear2d.cu and its relatives).
    """
    if site.channels_last:
        return _work(site, Kind.RESAMPLE, 4.0)
    batch, channels, *image = site.output().shape
    return _work(site, Kind.RESAMPLE, 4.0, loops=batch * channels, positions=math.prod(image))


def _fused_kernel(site: Site) -> tuple[Work, ...]:
    """A fused kernel; the inputs in `again` are read twice: for statistics, then with them."""
    (work,) = _pointwise(site)
    again = sum(site.input(position).bytes for position in site.settings.get("again", ()))
    return (replace(work, read_bytes=work.read_bytes + again),)


def _foreach(site: Site) -> tuple[Work, ...]:
    """A multi-tensor update: traffic over all tensors, in as few launches as they fit."""
    given = [spec for spec in site.inputs if spec is not None]
    tensors, elements = len(given), sum([math.prod(spec.shape) for spec in given])
    kind = Kind.OPTIMIZER if site.phase is Phase.OPTIMIZER else Kind.ELEMENTWISE
    work = Work(
        kind=kind,
        direction=site.direction,
        dims={"elements": elements, "tensors": tensors},
        dtype=site.dtype,
        flop=float(elements),
        read_bytes=site.read_bytes,
        write_bytes=site.write_bytes,
        kernels=max(1, math.ceil(tensors / _TENSORS_PER_LAUNCH)),
    )
    return (work,)


def _fused_adam(site: Site) -> tuple[Work, ...]:
    """Adam in one pass: weights, gradients and two moments are read, all but the gradients are written.

    The operator's schema says that it writes gradients, too, which it does only where it unscales them.
    """
    (work,) = _foreach(site)
    return (replace(work, flop=_ADAM_FLOP * work.flop / 4, write_bytes=0.75 * work.read_bytes),)


def _eight_bit(site: Site) -> tuple[Work, ...]:
    """One tensor and its state in eight bits: all but the gradient is written."""
    (work,) = _foreach(site)
    weights = site.input(0).elements
    return (replace(work, flop=_ADAM_FLOP * weights, dims={"elements": weights, "tensors": 1}, kernels=1),)


_ADAM_FLOP = 15.0
"""Arithmetic of Adam for one weight: two moments, their corrections, a root, a division, the decay."""

_TENSORS_PER_LAUNCH = 64
"""How many tensor addresses of two lists fit one multi-tensor launch (PyTorch, MultiTensorApply.cuh)."""


def by_nature(site: Site) -> tuple[Work, ...]:
    """Operators without a rule of their own, by what PyTorch declares of them; else unknown."""
    if site.name.startswith(("aten._foreach_", "aten._fused_")):
        return _foreach(site)
    if site.nature is Nature.VIEW:
        return _nothing(site)
    if site.nature is Nature.POINTWISE:
        return _pointwise(site)
    if site.nature is Nature.REDUCTION:
        return _reduction(site)
    return _work(site, Kind.UNKNOWN, 0.0)


def _pointwise(site: Site) -> tuple[Work, ...]:
    kind = Kind.OPTIMIZER if site.phase is Phase.OPTIMIZER else Kind.ELEMENTWISE
    operands = sum(spec is not None for spec in site.inputs)
    return _work(site, kind, _pointwise_flop(site.name), operands=operands)


def _pointwise_flop(name: str) -> float:
    is_plain = any(part in name for part in ("hard", "logical"))
    return _TRANSCENDENTAL_FLOP if not is_plain and any(part in name for part in _TRANSCENDENTAL) else 1.0


_TRANSCENDENTAL = ("gelu", "silu", "tanh", "sigmoid", "exp", "erf", "softplus", "mish", "log", "sin", "cos")
_TRANSCENDENTAL_FLOP = 10.0
"""Of a function that has no instruction of its own: a polynomial of about this many terms."""


RULES: Mapping[str, Rule] = {
    "foretrain.fused": _fused_kernel,
    **dict.fromkeys(_NO_KERNEL, _nothing),
    **dict.fromkeys(_FILLS, _fill),
    **dict.fromkeys(_COPIES, _copy),
    "aten.copy_": _overwrite,
    **dict.fromkeys(_GATHERS, _gather),
    **dict.fromkeys(_SCATTERS, _scatter),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_NORMS, _norm),
    **dict.fromkeys(_SOFTMAXES, _softmax),
    **dict.fromkeys(_POOLS, _pool),
    **dict.fromkeys(_RESAMPLES, lambda site: _work(site, Kind.RESAMPLE, 4.0)),
    **dict.fromkeys(_LOOPING_RESAMPLES, _looping_resample),
    **dict.fromkeys(_DROPOUTS, lambda site: _work(site, Kind.DROPOUT, 2.0)),
    **dict.fromkeys(_RANDOMS, lambda site: _work(site, Kind.RANDOM, 10.0)),
    **dict.fromkeys(_SORTS, lambda site: _work(site, Kind.SORT, 10.0)),
    **dict.fromkeys(_SCANS, lambda site: _work(site, Kind.SCAN, 1.0)),
    **dict.fromkeys(_PICKS_TARGETS, _target_loss),
    **dict.fromkeys(_LOSSES, lambda site: _work(site, Kind.LOSS, 1.0)),
    **dict.fromkeys(_OTHER_POINTWISE, _pointwise),
    **dict.fromkeys(("aten._fused_adam_", "aten._fused_adamw_"), _fused_adam),
    "foretrain.update_8bit": _eight_bit,
    "aten._cdist_forward": _distances,
    "torchvision.nms": _suppression,
    "torchvision.roi_align": _region_align,
    "torchvision._roi_align_backward": _region_align,
    "aten.embedding": _embedding,
    "aten.embedding_dense_backward": _embedding_backward,
    "aten._embedding_bag": _embedding_bag,
    "aten._embedding_bag_backward": _embedding_bag_backward,
}
