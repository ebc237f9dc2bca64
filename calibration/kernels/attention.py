"""Makes `calibrations/attention.json`: the rates of attention kernels by generation and compute capability.

Forward passes of FlashAttention 2 and 3 come from aiconfigurator, forward and backward passes of version 2
from estimate-train-time, of cuDNN from its own benchmarks (BF16 and FP8). The source of a row says which
kernel ran. Constants that a kernel's rows say nothing about (the backward pass on Hopper and Ada, wide heads)
are drawn to those of the other kernels.

No kernel of version 1 was measured alone. Its rates are those with which the steps of MPT models of 2023 at
16k tokens and more come out right (`llm_foundry`); see `VERSION_1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration.datasets import aiconfigurator, cudnn_frontend, estimate_train_time
from calibration.datasets.measurements import Measurements
from calibration.files import HeldOut, data_used
from calibration.least_squares import minimise
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.devices import device
from foretrain.prediction.operators.attention import FILE as FILE
from foretrain.prediction.operators.attention import (
    AttentionCalibration,
    AttentionConstants,
    AttentionKernel,
    attention_seconds,
)
from foretrain.prediction.operators.matrix import kernels_of
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.workloads.ops import Direction

FOLDS = 3
_EVERY = 7
"""estimate-train-time has 12,210 passes of shapes that differ little; a seventh of them is fitted."""
_WEIGHT = 500.0
"""Measurements each part counts for."""
_PULL = 2.0
"""How hard kernels are drawn to typical constants: as four measurements off by an e-fold."""
_VERSION_2 = frozenset({"flash_attention", "vllm_flash_attn", "vllm_flash_attn_fa2"})
_VERSION_3 = frozenset({"fa3", "vllm_flash_attn_fa3"})
_KIN = {"flash3": "cudnn", "cudnn": "flash3"}
"""Kernels of the same kind: warps that load and warps that multiply, asynchronously."""
_COMMON = np.log(np.array([15000.0, 1000.0, 0.87]))
_TYPICAL = np.log(np.array([0.6, 0.5, 0.95, 0.85, 5.0, 100.0]))
DEFAULTS = {"9.0": "cudnn", "10.0": "cudnn", "10.3": "cudnn", "other": "flash2"}
"""What PyTorch picks (`check_prefer_cudnn_attention` of sdp_utils.cpp): cuDNN from 9.15.1 on, which comes
with PyTorch 2.11, on compute capabilities 9.0 and 10; before, and on others, FlashAttention 2."""
FULL_RATES = {"8.6": 1024.0, "8.9": 1024.0, "12.0": 1024.0}
"""FLOP per cycle and SM of FP16 tensor cores in chips whose GeForce boards accumulate in FP32 at half rate
(NVIDIA's white papers of GA102, AD102, GB202)."""
VERSION_1 = {"8.0": (0.34, 0.34), "9.0": (0.18, 0.18)}
"""Shares of the tensor cores' rate, forward and backward, of version 1 and its Triton twin on A100 and H100.

Solved from nine steps of MPT 1B and 7B on 8 GPUs at 16k to 65k tokens: measured seconds less the predicted
seconds without attention (waiting for the slowest 1 %) are those of attention. The nine give 0.32-0.36 and
0.17-0.19; these are the geometric means."""


UNMEASURED_VERSION_1 = 0.5
"""Rates of version 1 over those of version 2 without these steps: "around 2x speedup compared to
FlashAttention" (T. Dao, "FlashAttention-2", 2023, abstract)."""


@dataclass(frozen=True, eq=False)
class Part:
    """Measurements of one kernel on one device."""

    generation: str
    is_eight_bit: bool
    measurements: Measurements

    @property
    def key(self) -> tuple[str, str, bool]:
        """The kernel: generation, compute capability, whether it computes in FP8."""
        return self.generation, kernels_of(device(self.measurements.devices[0])), self.is_eight_bit


@dataclass(frozen=True)
class AttentionFit:
    """Common constants, and those of each kernel that was seen."""

    constants: AttentionConstants
    kernels: Mapping[tuple[str, str, bool], AttentionKernel]

    def kernel(self, key: tuple[str, str, bool]) -> AttentionKernel:
        """The constants of a kernel: its own, else those of the nearest compute capability, or generation."""
        generation, capability, is_eight_bit = key
        same = {each: kernel for each, kernel in self.kernels.items() if each[0] == generation}
        kin = {each: kernel for each, kernel in self.kernels.items() if each[0] == _KIN.get(generation)}
        pool = same or kin or {each: kernel for each, kernel in self.kernels.items() if not each[2]}
        nearest = min(
            pool, key=lambda each: (each[2] != is_eight_bit, abs(float(each[1]) - float(capability)))
        )
        return pool[nearest]

    def seconds(self, part: Part) -> Floats:
        """Predictions of all measurements of a part."""
        target = device(part.measurements.devices[0])
        full_rate = FULL_RATES.get(kernels_of(target), 0.0)
        return attention_seconds(
            part.measurements.table, target, self.constants, self.kernel(part.key), full_rate
        )


def corpus(data: Path) -> tuple[Part, ...]:
    """All measurements, by kernel and device."""
    inference, training = (
        aiconfigurator.read_attention(data),
        estimate_train_time.read_attention(data, _EVERY),
    )
    cudnn = cudnn_frontend.read_attention(data)
    is_eight_bit = np.array([work.dtype.startswith("float8") for work in cudnn.works], bool)
    is_hopper = inference.device_ids == "h200-sxm"
    named_3 = np.isin(inference.labels, sorted(_VERSION_3))
    named_2 = np.isin(inference.labels, sorted(_VERSION_2))
    return (
        # On Hopper the serving stacks call version 3 under the plain name, too.
        *_by_device("flash2", False, inference.where(named_2 & ~is_hopper)),
        *_by_device("flash3", False, inference.where((named_2 | named_3) & is_hopper)),
        *_by_device("flash2", False, training),
        *_by_device("cudnn", False, cudnn.where(~is_eight_bit)),
        *_by_device("cudnn", True, cudnn.where(is_eight_bit)),
    )


def _by_device(generation: str, is_eight_bit: bool, measurements: Measurements) -> list[Part]:
    return [
        Part(generation, is_eight_bit, measurements.where(measurements.device_ids == name))
        for name in measurements.devices
    ]


def fit(parts: Sequence[Part]) -> AttentionFit:
    """The constants that fit the measurements best, each part with equal weight."""
    keys = sorted({part.key for part in parts})
    size = len(fields(AttentionKernel))

    def at(x: Floats) -> AttentionFit:
        own = np.exp(x[len(_COMMON) :]).reshape(len(keys), size).tolist()
        kernels = {key: AttentionKernel(*values) for key, values in zip(keys, own, strict=True)}
        return AttentionFit(AttentionConstants(*np.exp(x[: len(_COMMON)]).tolist()), kernels)

    def residuals(x: Floats) -> Floats:
        known = at(x)
        off = [
            np.log(known.seconds(part) / part.measurements.seconds)
            * np.sqrt(_WEIGHT / len(part.measurements))
            for part in parts
        ]
        own = x[len(_COMMON) :].reshape(len(keys), size)
        # Rates of forward passes are all measured; of backward passes only the ratio is drawn to the typical.
        ratio = (own[:, 1] - own[:, 0]) - (_TYPICAL[1] - _TYPICAL[0])
        drawn = np.concatenate([ratio, (own[:, 2:] - _TYPICAL[2:]).ravel()])
        return np.concatenate([*off, _PULL * drawn])

    start = np.concatenate([_COMMON, np.tile(_TYPICAL, len(keys))])
    return at(minimise(residuals, start, evaluations=25))


def cross_validate(parts: Sequence[Part]) -> tuple[HeldOut, ...]:
    """Predictions of each part by fits without its shapes, and without its GPU (other GPUs may share its
    compute capability)."""
    by_shape = [np.zeros(len(part.measurements)) for part in parts]
    folds = [part.measurements.fold(FOLDS) for part in parts]
    for number in range(FOLDS):
        learned = fit([_rows(part, fold != number) for part, fold in zip(parts, folds, strict=True)])
        for part, fold, into in zip(parts, folds, by_shape, strict=True):
            into[fold == number] = learned.seconds(part)[fold == number]
    by_device = []
    for part in parts:
        own = part.measurements.devices[0]
        learned = fit([other for other in parts if other.measurements.devices[0] != own])
        by_device.append(learned.seconds(part))
    return tuple(HeldOut(shape, gpu) for shape, gpu in zip(by_shape, by_device, strict=True))


def source_unseen(parts: Sequence[Part]) -> list[tuple[Part, Floats]]:
    """Predictions by fits without the source, of parts whose generation another source measured too."""
    results = []
    for source in sorted({part.measurements.source for part in parts}):
        others = [part for part in parts if part.measurements.source != source]
        generations = {part.generation for part in others}
        mine = [p for p in parts if p.measurements.source == source and p.generation in generations]
        if mine:
            learned = fit(others)
            results += [(part, learned.seconds(part)) for part in mine]
    return results


def _rows(part: Part, keep: Flags) -> Part:
    return replace(part, measurements=part.measurements.where(keep))


def version_1(learned: AttentionFit) -> dict[str, AttentionKernel]:
    """The kernels of version 1: shares from whole steps, all else as in version 2."""
    later = learned.kernel(("flash2", "8.0", False))
    return {
        capability: replace(later, forward=forward, backward=backward)
        for capability, (forward, backward) in VERSION_1.items()
    }


def without_llm_foundry() -> Mapping[str, Any]:
    """The entries without llm-foundry: version 1 runs at the share of version 2 that its author states."""
    kernels = calibration_content(FILE)["kernels"]
    half = {
        capability: {
            **kernel,
            **{name: UNMEASURED_VERSION_1 * kernel[name] for name in ("forward", "backward")},
        }
        for capability, kernel in kernels["flash2"].items()
    }
    return {"kernels": {**kernels, "flash1": half}}


def with_fit(known: AttentionCalibration, learned: AttentionFit) -> AttentionCalibration:
    """A calibration with other constants, for suites that leave something out."""
    return replace(known, constants=learned.constants, kernels=_table(learned, False))


def _table(learned: AttentionFit, is_eight_bit: bool) -> dict[str, dict[str, AttentionKernel]]:
    table: dict[str, dict[str, AttentionKernel]] = {}
    for (generation, capability, eight), kernel in sorted(learned.kernels.items()):
        if eight == is_eight_bit:
            table.setdefault(generation, {})[capability] = kernel
    if not is_eight_bit:
        table["flash1"] = version_1(learned)
    return table


def calibrate(data: Path) -> Mapping[str, Any]:
    """The content of the calibration file."""
    parts = corpus(data)
    held_out, learned = cross_validate(parts), fit(parts)
    measured = np.concatenate([part.measurements.seconds for part in parts])
    out = HeldOut(
        np.concatenate([each.shape_unseen for each in held_out]),
        np.concatenate([each.device_unseen for each in held_out]),
    )
    backward = [
        sum(work.direction is not Direction.FORWARD for work in part.measurements.works) for part in parts
    ]
    return {
        "model": "attention",
        "data": data_used([part.measurements for part in parts]),
        "parts": [
            {**row, "generation": part.generation, "fp8": part.is_eight_bit, "backward": count}
            for part, count in zip(parts, backward, strict=True)
            for row in data_used([part.measurements])
        ],
        "flash1_from": "nine whole steps of llm_foundry (MPT, 2023) at 16k tokens and more on A100 and H100; "
        "no kernel of version 1 was measured alone",
        "residuals_of": "measured / predicted; seen: by shape, unseen: by GPU left out",
        "residuals": out.residuals(measured),
        "defaults": DEFAULTS,
        "full_rates": FULL_RATES,
        "constants": asdict(learned.constants),
        "kernels": {
            generation: {capability: asdict(kernel) for capability, kernel in by_capability.items()}
            for generation, by_capability in _table(learned, False).items()
        },
        "eight_bit": {
            generation: {capability: asdict(kernel) for capability, kernel in by_capability.items()}
            for generation, by_capability in _table(learned, True).items()
        },
    }
