"""What several GPUs of a machine take longer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration.clusters.machines import Extras, fit_extras, terms
from calibration.datasets.lambda_labs_scaling import PYTORCH, TENSORFLOW, ScalingRun

RUN = ScalingRun(TENSORFLOW, "m", "rtx2080ti", False, False, "resnet50", "fp32", 4, 64, 0.2, 0.3)


def test_a_ring_moves_twice_all_but_a_share() -> None:
    assert terms([RUN])[0] == pytest.approx([0.2, 1.5 * 4 * 25_557_032, 161])


def test_pytorch_reduces_half_precision_in_half_precision() -> None:
    assert replace(RUN, precision="fp16").gradient_bytes == 4 * 25_557_032
    assert replace(RUN, precision="fp16", framework=PYTORCH).gradient_bytes == 2 * 25_557_032


def test_fit_recovers_what_made_the_runs_and_forgives_an_outlier() -> None:
    made = Extras(0.03, 1e-10, 5e-5)
    networks = ("alexnet", "inception3", "inception4", "resnet50", "resnet152", "vgg16")
    runs = [
        replace(RUN, network=name, single_seconds=0.1 * (1 + index)) for index, name in enumerate(networks)
    ]
    runs = [replace(run, seconds=float(made.seconds([run])[0])) for run in runs for _ in range(3)]
    runs[0] = replace(runs[0], seconds=3 * runs[0].seconds)
    predicted = fit_extras(runs).seconds(runs[1:])
    assert predicted == pytest.approx(np.array([run.seconds for run in runs[1:]]), rel=0.02)


def test_nothing_known_is_perfect_scaling() -> None:
    assert fit_extras([]).seconds([RUN]).tolist() == [0.2]
