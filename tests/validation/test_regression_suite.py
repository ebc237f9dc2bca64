"""The regression suite on made-up steps, where the right answer is known."""

from __future__ import annotations

import pytest
from validation.regression_suite import (
    ALL_GPUS,
    BY_PEAK,
    ONE_GPU,
    OTHER_GPUS,
    PROPORTIONAL,
    _larger_batches,
    _unseen_powers,
)

from foretrain.facts.devices import device

GPUS = ("m60", "t4", "k80", "v100-sxm2-16gb")
BATCHES = (16, 32, 64, 128, 256)


def seconds(gpu: str, batch: int) -> float:
    """A step whose time is all arithmetic, and a start of 10 ms."""
    return 0.01 + 50e9 * batch / device(gpu).sheet.number("fp32_flop_per_second")


RUNS = {("net", 32, gpu, batch): [seconds(gpu, batch)] * 3 for gpu in GPUS for batch in BATCHES}


def test_larger_batches_follow_from_small_ones() -> None:
    cases = list(_larger_batches(RUNS, ("net", 32)))
    assert len(cases) == len(GPUS) * 2
    for case in cases:
        assert case.predicted[ONE_GPU] == pytest.approx(case.measured, rel=1e-6)
        assert case.predicted[ALL_GPUS] == pytest.approx(case.measured, rel=1e-6)
        assert case.predicted[PROPORTIONAL] > case.measured


def test_a_gpu_left_out_follows_from_its_computing_power() -> None:
    cases = list(_unseen_powers(RUNS, ("net", 32)))
    assert len(cases) == len(RUNS)
    for case in cases:
        assert case.predicted[OTHER_GPUS] == pytest.approx(case.measured, rel=1e-6)
        if case.group == "v100-sxm2-16gb":  # the fastest: its start shrinks with the arithmetic, wrongly
            assert case.predicted[BY_PEAK] < case.measured


def test_nothing_of_the_gpu_left_out_is_seen() -> None:
    """A GPU slowed a thousandfold is predicted as if it were not."""
    slow = {key: [1000 * value[0]] if key[2] == "t4" else value for key, value in RUNS.items()}
    by_name = {case.name: case for case in _unseen_powers(slow, ("net", 32)) if case.group == "t4"}
    assert by_name["net 32 px, batch 64 on t4"].predicted[OTHER_GPUS] == pytest.approx(seconds("t4", 64))


def test_too_few_timings_make_no_case() -> None:
    two = {key: value for key, value in RUNS.items() if key[2] == "t4" and key[3] in (16, 32, 128)}
    assert list(_larger_batches(two, ("net", 32))) == []
