"""What a parameter costs DataParallel's interpreter."""

from __future__ import annotations

import pytest
from calibration.datasets.ryujaehun import SmallStep
from calibration.steps.data_parallel import Replicated, fit


def replicated(seconds: float, devices: int = 2, parameter_bytes: float = 1e8) -> Replicated:
    step = SmallStep("torchvision:resnet50", "rtx2080ti", "host", False, "fp32", seconds, devices)
    return Replicated(step, 100, parameter_bytes, 0.055, 0.060, 0.050)


def test_what_is_left_is_shared_by_parameters_and_devices() -> None:
    # 80 ms, of which 60 on one GPU and 5 for copies: 15 ms for 2 x 100
    assert replicated(0.080).seconds_per_parameter == pytest.approx(0.015 / 200)
    assert replicated(0.095, devices=4).seconds_per_parameter == pytest.approx(0.030 / 400)


def test_fit_is_a_median_without_models_that_copy_much() -> None:
    usual = [replicated(0.080), replicated(0.085), replicated(0.090)]
    stuck, copying = replicated(5.0), replicated(0.3, parameter_bytes=5e8)
    assert fit([*usual, copying]) == pytest.approx(0.020 / 200)
    assert fit([*usual, stuck, copying]) == pytest.approx(0.0225 / 200)
