"""Fused (flash) attention: one pass over blocks of scores that never reach memory.

    t = start + | computing , moving |
    computing = rows · depth · ( 2 · products · head / tensor rate + lanes / FP32 peak ) / SMs
    tensor rate = | share · full-rate peak , 0.95 · peak |   (close to the lower of the two)

A block holds 128 queries and iterates over the keys: all of them or, with a causal mask, half on average and
the whole block on the diagonal, or those of a window (`_mean_keys`). Queries of heads that share keys are
packed into blocks. `depth` is the number of keys of the busiest SM: waves of blocks times their mean length,
but at least the longest block, which is split if it is long. Heads are padded to multiples of 32. `lanes` is
the arithmetic of one score outside of tensor cores (exponential, maximum, scale), which makes narrow heads
slower on GPUs with many tensor cores per FP32 lane. The forward pass has two products, the backward pass
five.

The share of peak depends on the **generation** of the kernel and on the compute capability, not on the board:
an A100 of 40 GB runs the kernels of one of 80 GB. Boards that accumulate in FP32 at half rate (GeForce) feed
their tensor cores as fast as others do and come closer to their lower peak.

| generation | kernel |
|---|---|
| flash1 | FlashAttention 1 and its Triton version of 2023 |
| flash2 | FlashAttention 2: what PyTorch calls on Ampere, Ada and consumer Blackwell, and up to 2.10 on all |
| flash3 | FlashAttention 3, for Hopper |
| cudnn | cuDNN: what PyTorch calls on Hopper and data-centre Blackwell from 2.11 on; Transformer Engine |

References: T. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning", 2023;
J. Shah et al., "FlashAttention-3", 2024; PyTorch, `check_prefer_cudnn_attention` in sdp_utils.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from foretrain.facts.calibrations import load_calibration
from foretrain.facts.devices import Device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.matrix import norm
from foretrain.prediction.operators.pricing import (
    Confidence,
    Flags,
    Floats,
    OperatorModel,
    Residuals,
    WorkTable,
    peaks,
    roofline_seconds,
)
from foretrain.workloads.ops import ATTENTION_GENERATIONS, Direction, Kind

FILE = "attention.json"
ROWS = 128
"""Queries per block."""
_PADDED = 32  # kernels exist for heads of multiples of this width; others are padded
_WIDE = 128
"""Heads up to this width keep their accumulators in registers."""
_NEAR_PEAK = 0.95
_SHARPNESS = 8.0
_DEFAULT = ATTENTION_GENERATIONS.index("default")
_HOPPER_ONLY, _HOPPER = "flash3", 9
"""The kernel that only the GPUs of one major compute capability run."""


@dataclass(frozen=True)
class AttentionKernel:
    """The fitted constants of one kernel on one compute capability.

    `forward`, `backward`: share of the tensor cores' full rate; `wide_forward`, `wide_backward`: times that
    for heads above 128. `lanes`: FP32 operations of a score. `k_start`: keys' worth of time to start a block.
    """

    forward: float
    backward: float
    wide_forward: float
    wide_backward: float
    lanes: float
    k_start: float


@dataclass(frozen=True)
class AttentionConstants:
    """What kernels have in common: the start of a kernel, the shortest split of a long block, the share of
    the rate that heads keep whose width is no multiple of 32."""

    start_cycles: float
    least_split: float
    uneven: float


def attention_seconds(
    works: WorkTable, device: Device, known: AttentionConstants, kernel: AttentionKernel, full_rate: float = 0
) -> Floats:
    """Seconds of fused attention by one kernel.

    `full_rate`: FLOP per cycle and SM of the tensor cores where a board may have a lower peak; else 0.
    """
    sms, clock = device.sm_count, device.clock_hertz
    backward = ~works.directed(Direction.FORWARD)
    depth = _depth(works, sms, known, kernel)
    head, value_head = (_pad(works.dim(name)) for name in ("head", "value_head"))
    # Backward: scores again, gradients of scores, queries, keys and values; forward: scores and their sum.
    products = np.where(backward, 3 * head + 2 * value_head, head + value_head)
    share = np.where(backward, kernel.backward, kernel.forward)
    wide = np.where(backward, kernel.wide_backward, kernel.wide_forward)
    share = share * np.where(works.dim("head") > _WIDE, wide, 1.0)
    share = share * np.where(works.dim("head") % _PADDED == 0, 1.0, known.uneven)
    peak = peaks(works, device)
    rate = _lower(share * np.maximum(peak, full_rate * sms * clock), _NEAR_PEAK * peak)
    lanes = np.where(backward, 2.5, 1.0) * kernel.lanes / device.sheet.number("fp32_flop_per_second")
    computing = ROWS * depth * sms * (2 * products / rate + lanes)
    moving = works.bytes / (device.memory_bytes_per_second * streaming.calibration().share(device))
    return known.start_cycles / clock + norm(computing, moving)


def _depth(works: WorkTable, sms: float, known: AttentionConstants, kernel: AttentionKernel) -> Floats:
    """Keys that the busiest SM iterates over."""
    queries, keys = works.dim("queries"), works.dim("keys")
    blocks = works.dim("batch") * np.maximum(works.dim("heads") * queries / ROWS, works.dim("kv_heads"))
    window = works.dim("window", 0)
    span = np.where(window > 0, np.minimum(keys, window + ROWS), keys)
    return np.asarray(
        np.maximum(
            blocks / sms * (_mean_keys(works) + kernel.k_start),
            np.minimum(span, known.least_split) + kernel.k_start,
        )
    )


def _mean_keys(works: WorkTable) -> Floats:
    """Keys that a block iterates over, on average: all n, or (n + 128) / 2 if causal. A window leaves
    w + 128, of which the first causal blocks have fewer:

        mean over blocks b of min(128 b, w + 128) = (w + 128) (1 - w / 2n)

    That is (n + 128) / 2 where only the first key of the last block is beyond the window.
    """
    keys, window = works.dim("keys"), works.dim("window", 0)
    is_causal = works.dim("causal", 0) > 0
    whole = np.where(is_causal, np.minimum(keys, (keys + ROWS) / 2), keys)
    inside = (window + ROWS) * np.where(is_causal, 1 - window / (2 * keys), 1.0)
    return np.asarray(np.where((window > 0) & (window + ROWS < keys), inside, whole))


def _pad(width: Floats) -> Floats:
    return np.asarray(np.ceil(width / _PADDED) * _PADDED)


def _lower(first: Floats, second: Floats) -> Floats:
    """Smoothly the lower of two rates."""
    return np.asarray((first**-_SHARPNESS + second**-_SHARPNESS) ** (-1 / _SHARPNESS))


@dataclass(frozen=True)
class AttentionCalibration:
    """The calibration in `data/calibrations/attention.json`.

    `kernels` by generation and compute capability; `eight_bit` the same for FP8 operands. `defaults`: the
    generation that PyTorch calls, by compute capability. `full_rates`: FLOP per cycle and SM of the tensor
    cores of capabilities with boards of half rate.
    """

    constants: AttentionConstants
    kernels: Mapping[str, Mapping[str, AttentionKernel]]
    eight_bit: Mapping[str, Mapping[str, AttentionKernel]]
    defaults: Mapping[str, str]
    full_rates: Mapping[str, float]
    residuals: Residuals

    def generation(self, asked: int, device: Device) -> str:
        """The kernel that runs: as asked if the device has it, else PyTorch's default."""
        name = ATTENTION_GENERATIONS[asked]
        is_missing = name == _HOPPER_ONLY and int(device.cuda_capability) != _HOPPER
        if asked == _DEFAULT or is_missing:
            return self.defaults.get(device.compute_capability, self.defaults["other"])
        return name

    def kernel(self, generation: str, device: Device, is_eight_bit: bool = False) -> AttentionKernel:
        """The constants of a kernel on a device; those of the nearest compute capability if not measured.

        GPUs of other vendors have those of the newest: their kernels are the farthest from their peaks, too.
        """
        tables = self.eight_bit if is_eight_bit and generation in self.eight_bit else self.kernels
        by_capability = tables[generation]
        if device.compute_capability in by_capability:
            return by_capability[device.compute_capability]
        wanted = device.cuda_capability or max(map(float, by_capability))
        return by_capability[min(by_capability, key=lambda each: (abs(float(each) - wanted), float(each)))]

    def is_measured(self, device: Device) -> bool:
        """Whether the default kernel was measured on the compute capability of a device."""
        return device.compute_capability in self.kernels[self.generation(_DEFAULT, device)]


@cache
def calibration() -> AttentionCalibration:
    """The shipped calibration."""
    return load_calibration(AttentionCalibration, FILE)


class AttentionModel(OperatorModel):
    """Prices fused attention, forward and backward."""

    name: ClassVar[str] = "attention"
    kinds: ClassVar[frozenset[Kind]] = frozenset({Kind.ATTENTION})

    def __init__(self, known: AttentionCalibration | None = None) -> None:
        """With the shipped calibration, or another one."""
        self._known = known

    def seconds(self, works: WorkTable, device: Device) -> Floats:
        """Device seconds of each work."""
        known = self._known or calibration()
        asked = works.dim("generation", _DEFAULT).astype(int)
        eight_bit = np.array([work.dtype.startswith("float8") for work in works.works], bool)
        full_rate = known.full_rates.get(device.compute_capability, 0.0)
        times = np.zeros(len(works))
        for code, is_eight_bit in sorted(set(zip(asked.tolist(), eight_bit.tolist(), strict=True))):
            here: Flags = (asked == code) & (eight_bit == is_eight_bit)
            kernel = known.kernel(known.generation(code, device), device, is_eight_bit)
            part = works if here.all() else works.rows(here)
            times[here] = attention_seconds(part, device, known.constants, kernel, full_rate)
        return np.maximum(times, roofline_seconds(works, device))

    def confidence(self, kind: Kind, device: Device) -> Confidence:
        """Residuals on measured or other compute capabilities."""
        del kind
        known = self._known or calibration()
        return known.residuals.confidence(known.is_measured(device), FILE)
