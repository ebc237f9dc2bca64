"""The plain roofline as a model."""

from __future__ import annotations

from calibration.datasets.works import product
from tests.support.plain_devices import plain_device

from foretrain.prediction.operators.listing import table
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.workloads.ops import Kind


def test_a_product_on_a_device_that_does_one_flop_per_second() -> None:
    work = product(1, 2, 3, 4, "float32", is_linear=True)
    assert RooflineModel().seconds(table([work]), plain_device(bytes_per_second=1e9)).tolist() == [48.0]


def test_the_same_product_on_a_device_that_moves_one_byte_per_second() -> None:
    work = product(1, 2, 3, 4, "float32", is_linear=True)  # 4 bytes each of 8 + 12 + 6 elements
    assert RooflineModel().seconds(table([work]), plain_device(flop_per_second=1e9)).tolist() == [104.0]


def test_prices_everything_but_views() -> None:
    assert RooflineModel.kinds == frozenset(Kind) - {Kind.VIEW}


def test_the_interval_begins_at_the_bound() -> None:
    trust = RooflineModel().confidence(Kind.LINEAR, plain_device())
    assert (trust.p10, trust.p90) == (1.0, 10.0)
