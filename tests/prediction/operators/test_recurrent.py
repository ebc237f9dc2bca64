"""Recurrent layers: hand-derived times, and what must hold on any device."""

from __future__ import annotations

import numpy as np
import pytest
from calibration.datasets.deepbench import recurrent_work
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrain.facts.devices import Device, device, devices
from foretrain.prediction.operators.pricing import roofline_seconds, table
from foretrain.prediction.operators.recurrent import (
    RecurrentConstants,
    RecurrentModel,
    RecurrentParts,
    nearest,
    recurrent_seconds,
)
from foretrain.workloads.ops import Direction

GPUS = tuple(item for item in devices().values() if item.is_gpu and item.vendor == "nvidia")
ONE, TWO = RecurrentConstants(1.0, 1.0, 1.0), RecurrentConstants(2.0, 2.0, 1.0)


def priced(gates: int, hidden: int, batch: int, steps: int, target: Device, direction: Direction) -> float:
    """The time that the shipped model predicts."""
    layer = recurrent_work(gates, hidden, batch, steps, "float32", direction)
    return float(RecurrentModel().seconds(table([layer]), target)[0])


def test_steps_follow_each_other() -> None:
    """Ten steps of 1 s overhead and a 2 s product at half efficiency, after 3 s of inputs: 3 + 10 (1 + 4)."""
    one = np.ones(1)
    parts = RecurrentParts(inputs=3 * one, step=2 * one, weights=0 * one, steps=10 * one, is_backward=0 * one)
    assert recurrent_seconds(parts, RecurrentConstants(1.0, 7.0, 0.5)).tolist() == [53.0]


def test_a_later_generation_takes_the_latest_constants() -> None:
    assert nearest({"pascal": ONE, "volta": TWO}, device("p100-pcie")) == ONE
    assert nearest({"pascal": ONE, "volta": TWO}, device("h100-sxm")) == TWO


def test_backward_costs_more_than_forward() -> None:
    v100 = device("v100-sxm2-16gb")
    forward, backward = (
        priced(4, 1024, 64, 25, v100, way) for way in (Direction.FORWARD, Direction.BACKWARD)
    )
    assert backward > forward


def test_deepbench_lstm_on_v100() -> None:
    """DeepBench: LSTM of 2048, batch 64, 25 steps, FP32: 5.57 ms forward, 8.97 ms backward."""
    v100 = device("v100-sxm2-16gb")
    assert priced(4, 2048, 64, 25, v100, Direction.FORWARD) == pytest.approx(5.57e-3, rel=0.35)
    assert priced(4, 2048, 64, 25, v100, Direction.BACKWARD) == pytest.approx(8.97e-3, rel=0.35)


@settings(max_examples=30)
@given(
    st.sampled_from(GPUS), st.sampled_from([256, 1024]), st.sampled_from([16, 64]), st.sampled_from(Direction)
)
def test_conforms(target: Device, hidden: int, batch: int, direction: Direction) -> None:
    once = priced(4, hidden, batch, 25, target, direction)
    layer = recurrent_work(4, hidden, batch, 25, "float32", direction)
    assert once >= float(roofline_seconds(table([layer]), target)[0])
    assert priced(4, hidden, batch, 50, target, direction) > once
