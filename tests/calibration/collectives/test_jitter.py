"""How much step times vary between GPUs, recovered from runs made with a known variation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calibration.collectives.jitter import CANDIDATES, best_candidate, by_links, growth, growth_errors, waits
from calibration.datasets.lambda_labs_scaling import ScalingRun

from foretrain.facts.devices import device
from foretrain.prediction.stragglers import default_jitter, slowdown

RUN = ScalingRun("pytorch", "m", "v100-sxm2-16gb", False, False, "resnet50", "fp32", 4, 64, 0.2, 0.3)


@pytest.mark.parametrize("cv", [0.0, 0.03, 0.05])
def test_its_own_variation_is_recovered(cv: float) -> None:
    """Runs that take exactly as long as the model says for one candidate."""
    runs = [replace(RUN, devices=count) for count in (2, 4, 8)]
    predicted = by_links(runs)
    place = int(np.abs(CANDIDATES - cv).argmin())
    made = [
        replace(run, seconds=float(even + wait))
        for run, even, wait in zip(runs, predicted, waits(runs)[place], strict=True)
    ]
    assert best_candidate(made, predicted, np.ones(len(made), bool)) == place


@pytest.mark.parametrize("cv", [0.0, 0.0125, 0.05])
def test_variation_is_recovered_from_growth_whatever_two_gpus_cost(cv: float) -> None:
    """A constant 20 % beyond one GPU is no wait for the slowest."""
    counts = (2, 4, 8)
    runs = [replace(RUN, devices=count, seconds=1.2 * slowdown(count, cv)) for count in counts]
    steps = growth(runs, np.ones(len(runs)))
    assert [(step.fewer, step.more) for step in steps] == [(2, 4), (4, 8)]
    assert CANDIDATES[growth_errors(steps).mean(axis=1).argmin()] == pytest.approx(cv)


def test_waits_are_those_of_the_slowest() -> None:
    """0.2 s on one GPU: the slowest of four that vary by 5 % takes longer by the expected maximum."""
    place = int(np.abs(CANDIDATES - 0.05).argmin())
    assert waits([RUN])[place, 0] == pytest.approx(0.2 * (slowdown(4, 0.05) - 1))
    assert waits([RUN])[0, 0] == 0


def test_usual_variation_is_of_gpus() -> None:
    """CPUs were not among the runs. Weak scaling from 8 to 128 GPUs costs 1.6 %: about 0.013."""
    assert 0.005 < default_jitter(device("h100-sxm")) < 0.02
    assert default_jitter(device("epyc-7742")) == 0
