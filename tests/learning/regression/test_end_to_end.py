"""End-to-end regression: recovers its own law, refuses what it cannot predict, and is stored as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.facts.devices import device
from foretrain.learning.regression.end_to_end import (
    Deviation,
    Term,
    candidates,
    features_of,
    fit,
    powers_of,
    read,
    write,
)
from foretrain.learning.regression.timings import Configuration, Timing

GPUS = ("k80", "m60", "t4", "v100-sxm2-16gb", "p100-pcie")
NOISE = np.random.default_rng(3)
Law = Callable[[Configuration], float]


def gflop(configuration: Configuration) -> float:
    """GFLOP/s of the configuration's device."""
    return device(configuration.device).sheet.number("fp32_flop_per_second") / 1e9


def timed(law: Law, *configurations: Configuration, noise: float = 0.01) -> list[Timing]:
    """What a stopwatch would show, give or take a percent."""
    return [Timing(each, law(each) * (1 + noise * NOISE.normal())) for each in configurations]


def per_batch(configuration: Configuration) -> float:
    """A step of 10 ms and 2 ms a sample."""
    return 0.01 + 0.002 * configuration.batch


BATCHES = [Configuration("t4", batch=batch) for batch in (8, 16, 24, 32, 48, 64)]


def test_all_products_of_two_features_and_their_inverses() -> None:
    named = {str(term) for term in candidates({"batch": (1, -1), "gpus": (1,)})}
    assert named == {"batch", "1 / batch", "gpus", "batch · gpus", "gpus / batch"}


def test_iterations_multiply_every_term() -> None:
    named = {str(term) for term in candidates({"batch": (1, -1), "iterations": (1,)})}
    expected = {"iterations", "batch", "batch · iterations", "1 / batch", "iterations / batch"}
    assert named == expected


def test_a_term_by_hand() -> None:
    term = Term((("batch", 1), ("gflop_per_second", -1)))
    assert term.value({"batch": 6.0, "gflop_per_second": 4.0}) == 1.5


def test_few_values_get_one_power_and_a_delay_of_zero_no_inverse() -> None:
    assert powers_of("batch", [1, 2, 4, 8]) == (1, -1)
    assert powers_of("gflop_per_second", [1, 2, 4, 4]) == (-1,)
    assert powers_of("batch", [1, 2, 4]) == (1,)
    assert powers_of("disk_delay_seconds", [0, 1, 2, 3, 4]) == (1,)


def test_batch_is_extrapolated() -> None:
    predicted = fit(timed(per_batch, *BATCHES)).predict(Configuration("t4", batch=256))
    assert predicted.p50 == pytest.approx(0.522, rel=0.05)
    assert predicted.p10 < 0.522 < predicted.p90
    assert predicted.p90 < 0.7


def test_computing_power_is_extrapolated_where_it_decides() -> None:
    def law(configuration: Configuration) -> float:
        return 0.005 + 40 * configuration.batch / gflop(configuration)

    known = [Configuration(name, batch=batch) for name in GPUS for batch in (16, 32, 64, 128)]
    model = fit(timed(law, *known))
    unseen = Configuration("rtx3090", batch=64)
    assert model.predict(unseen).p50 == pytest.approx(law(unseen), rel=0.15)
    assert model.unseen is not None


def test_finds_disk_delay_threads_gpus_and_iterations() -> None:
    def law(c: Configuration) -> float:
        return 3 + c.iterations * (0.02 * c.gpus + 0.1 / c.threads + c.disk_delay_seconds)

    runs = [
        Configuration("t4", gpus, 32, threads, delay, iterations)
        for gpus in (1, 2, 4)
        for threads in (1, 2, 4, 8)
        for delay in (0, 0.05)
        for iterations in (100, 200, 400)
    ]
    model = fit(timed(law, *runs))
    longer = Configuration("t4", 8, 32, 16, 0.1, 1000)
    assert model.predict(longer).p50 == pytest.approx(law(longer), rel=0.1)


def test_the_law_in_words() -> None:
    model = fit(timed(per_batch, *BATCHES, noise=0))
    assert str(model) == "seconds = 0.01 +0.002 · (batch)"


def test_three_timings_are_enough_and_two_are_not() -> None:
    three = [Configuration("t4", batch=batch) for batch in (16, 32, 64)]
    assert fit(timed(per_batch, *three)).predict(Configuration("t4", batch=128)).p50 > 0.2
    with pytest.raises(MissingData, match="timings of 2 configurations are too few"):
        fit(timed(per_batch, *three[:2], *three[:2]))
    with pytest.raises(MissingData, match="timings of 0 configurations"):
        fit([])


def test_repeats_are_not_configurations_and_do_not_narrow_the_interval() -> None:
    """Times that do not follow a line: measured often and exactly, they still do not."""
    three = [Configuration("t4", batch=batch) for batch in (16, 32, 64)]
    once = [Timing(each, seconds) for each, seconds in zip(three, (1.0, 1.5, 3.0), strict=True)]
    target = Configuration("t4", batch=32)
    predicted = fit(once * 9).predict(target)
    assert predicted.p90 / predicted.p50 > 1.1


def test_several_networks_are_refused() -> None:
    runs = [Timing(each, 1.0, name) for each in BATCHES for name in ("vgg16", "resnet50")]
    with pytest.raises(InvalidRequest, match="one network; these are timings of resnet50, vgg16"):
        fit(runs)


def test_a_feature_that_never_varied_cannot_be_predicted() -> None:
    model = fit(timed(per_batch, *BATCHES))
    with pytest.raises(InvalidRequest, match=r"gpus 2 \(all timings: 1\)"):
        model.predict(Configuration("t4", gpus=2, batch=32))
    with pytest.raises(InvalidRequest, match="gflop_per_second"):
        model.predict(Configuration("v100-sxm2-16gb", batch=32))


def test_below_zero_it_says_nothing() -> None:
    runs = [Configuration("t4", batch=batch) for batch in (64, 128, 256)]
    model = fit(timed(lambda c: 0.002 * c.batch - 0.1, *runs, noise=0.001))
    with pytest.raises(MissingData, match=r"is negative at .*batch 64 to 256"):
        model.predict(Configuration("t4", batch=8))


def test_times_that_depend_on_nothing_are_their_mean() -> None:
    model = fit(timed(lambda _: 2.0, *BATCHES))
    assert model.terms == ()
    assert model.predict(Configuration("t4", batch=512)).p50 == pytest.approx(2.0, rel=0.02)


def test_is_kept_as_text_and_read_back(tmp_path: Path) -> None:
    model = fit(timed(per_batch, *BATCHES))
    write(model, tmp_path / "model.json")
    again = read(tmp_path / "model.json")
    at = Configuration("t4", batch=100)
    assert again.predict(at) == model.predict(at)
    assert again.devices == ("t4",)


def test_files_that_are_no_regression(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="fit one"):
        read(tmp_path / "none.json")
    for content in ("{", "{}", json.dumps({"format": 9, "kind": "end-to-end regression"})):
        (tmp_path / "odd.json").write_text(content, encoding="utf-8")
        with pytest.raises(InvalidData, match="not an end-to-end regression"):
            read(tmp_path / "odd.json")


def test_features_of_a_configuration() -> None:
    found = features_of(Configuration("t4", gpus=2, batch=8))
    assert (found["gpus"], found["batch"], found["iterations"]) == (2, 8, 1)
    assert found["gflop_per_second"] == gflop(Configuration("t4"))


@pytest.mark.parametrize(("freedom", "value"), [(1, 3.0777), (2, 1.8856), (10, 1.3722), (1000, 1.2824)])
def test_the_p90_of_a_deviation_is_that_of_the_table_of_t(freedom: int, value: float) -> None:
    assert Deviation(2.0, freedom).p90 == pytest.approx(2 * value, abs=2e-4)
