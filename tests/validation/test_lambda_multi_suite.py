"""Leaving out in the suite of several GPUs: which runs may predict which."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration.collectives.jitter import by_links
from calibration.datasets.lambda_labs_scaling import TENSORFLOW, ScalingRun
from validation.lambda_multi_suite import _gpu_left_out, _network_left_out

RUN = ScalingRun(TENSORFLOW, "m", "rtx2080ti", False, True, "resnet50", "fp32", 4, 64, 0.2, 0.3)


def test_a_network_is_predicted_by_the_others_of_its_machine() -> None:
    others = [replace(RUN, network=name, seconds=0.3) for name in ("vgg16", "resnet152", "inception4")]
    elsewhere = [replace(RUN, machine="n", seconds=9.0)]
    wild = replace(RUN, seconds=50.0)
    predicted = _network_left_out([wild, *others, *elsewhere])
    assert predicted[0] < 0.6  # its own time and that of other machines have no influence
    assert predicted[4] == pytest.approx(0.2)  # no other run there: perfect scaling


def test_a_gpu_is_predicted_by_other_gpus() -> None:
    similar = [replace(RUN, device_id=name, machine=name, seconds=0.3) for name in ("rtx3090", "rtx8000")]
    predicted = _gpu_left_out([replace(RUN, seconds=50.0), *similar])
    assert predicted[0] == pytest.approx(0.3, rel=0.02)


def test_sheets_predict_at_least_the_time_on_one() -> None:
    runs = [replace(RUN, devices=count) for count in (2, 4, 8)]
    predicted = by_links(runs)
    assert (predicted > 0.2).all()
    assert (np.diff(predicted) > 0).all()  # under a host bridge more are slower
