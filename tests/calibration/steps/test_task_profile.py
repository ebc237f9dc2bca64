"""A task's mix is recovered from its times on some GPUs, and predicts another."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.datasets.lambda_labs import LambdaRun
from calibration.steps.task_profile import TaskRun, fit_profile, units

_GPUS = (
    "v100-sxm2-16gb", "rtx6000", "rtx3090", "a100-pcie-40gb", "a100-sxm-80gb", "rtxa6000", "h100-pcie", "a10",
)  # fmt: skip


def _run(gpu: str, seconds: float, software: str = "1.13") -> TaskRun:
    return TaskRun(LambdaRun("task", "fp16", gpu, software, 64.0, True, seconds))


def _mixed(gpu: str) -> float:
    product, _, byte, _ = units(gpu, "fp16")
    return 1e12 * product + 3e9 * byte


def test_a_mix_of_products_and_bytes_is_predicted_on_a_gpu_left_out() -> None:
    for left_out in ("rtx6000", "a100-pcie-40gb", "a100-sxm-80gb", "rtxa6000"):
        profile = fit_profile([_run(gpu, _mixed(gpu)) for gpu in _GPUS if gpu != left_out])
        predicted = float(profile.seconds([_run(left_out, 1.0)])[0])
        assert predicted == pytest.approx(_mixed(left_out), rel=0.15)


def test_slower_software_is_a_factor() -> None:
    runs = [_run(gpu, _mixed(gpu)) for gpu in _GPUS] + [_run(gpu, 1.3 * _mixed(gpu), "1.4") for gpu in _GPUS]
    old, new = fit_profile(runs).seconds([_run("a10", 1.0, "1.4"), _run("a10", 1.0)]).tolist()
    assert old / new == pytest.approx(1.3, rel=0.05)


def test_tf32_is_faster_than_fp32_lanes_and_fp16_than_both() -> None:
    assert units("a100-sxm-80gb", "fp16")[0] < units("a100-sxm-80gb", "fp32")[0]
    assert units("a100-sxm-80gb", "fp32")[0] < units("v100-sxm2-16gb", "fp32")[0]
    assert np.all(np.array(units("a10", "fp32")) > 0)
