"""Fits recover what made the data, and the exponent of contention is worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
from calibration.collectives.fit import blocks, by_device, fit, predicted
from calibration.collectives.links import exponents
from calibration.datasets.measurements import CollectiveTime, powers_of_two
from calibration.datasets.sia import Waiting

from foretrain.facts.links import NVLINK
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.collectives.network import (
    CollectiveCalibration,
    LinkFit,
    calibration,
    unseen_spread,
)


def made(learned: CollectiveCalibration) -> list[CollectiveTime]:
    """Times as a calibration predicts them."""
    bare = [
        CollectiveTime("made", machine, "nvswitch", verb, devices, float(size), 1.0)
        for machine in ("a100-sxm-80gb:8", "h200-sxm:8")
        for verb in (Verb.ALL_REDUCE, Verb.ALL_TO_ALL)
        for devices in (2, 8)
        for size in np.logspace(4, 9, 8)
    ]
    times = np.concatenate([predicted(block, learned) for block in blocks(bare)])
    return [replace(time, seconds=float(seconds)) for time, seconds in zip(bare, times, strict=True)]


def test_a_fit_recovers_what_made_its_data() -> None:
    shipped = calibration()
    truth = CollectiveCalibration(
        {NVLINK: shipped.technologies[NVLINK]},
        {"nvswitch2": LinkFit(0.8, 1.3), "nvswitch3": LinkFit(1.1, 0.8, 0.55)},
    )
    found = blocks(made(truth))
    learned = fit(found, NVLINK)
    off = np.concatenate([predicted(block, learned) / block.seconds - 1 for block in found])
    assert np.abs(off).mean() < 0.04
    ratio = learned.links["nvswitch3"].share / learned.links["nvswitch2"].share
    assert ratio == pytest.approx(1.1 / 0.8, rel=0.1)


def test_the_same_device_of_two_laboratories_is_one_type() -> None:
    one = CollectiveTime("here", "a100-sxm-80gb:8", "nvswitch", Verb.ALL_REDUCE, 2, 1e6, 1e-5)
    found = blocks([one, replace(one, source="there"), replace(one, bytes=2e6)])
    assert len(found) == 2
    assert {name: len(group) for name, group in by_device(found).items()} == {"a100-sxm-80gb": 2}


def test_a_bus_that_four_devices_share_like_an_ideal_one_has_exponent_one() -> None:
    """Four devices move 1.5 times what two do, at half the rate: three times as long."""
    waiting = [Waiting("rack", "model", 2, 1.0), Waiting("rack", "model", 4, 3.0)]
    assert exponents(waiting) == pytest.approx({"rack": 1.0})


def test_the_error_of_a_machine_predicted_from_others_is_the_difference_of_exponents() -> None:
    spread = unseen_spread({"one": 1.0, "other": 1.0})
    assert spread["p10"] == spread["p90"] == 1.0
    assert unseen_spread({"one": 0.0, "other": 2.0})["p90"] > 4


def test_only_powers_of_two_are_kept() -> None:
    one = CollectiveTime("here", "dgx-1v", "nvlink-mesh", Verb.ALL_REDUCE, 2, 1.0, 1e-5)
    sizes = [replace(one, bytes=count * 1024.0) for count in range(1, 9)]
    assert [time.bytes / 1024 for time in powers_of_two(sizes, 1024)] == [1, 2, 4, 8]
