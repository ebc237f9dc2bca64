"""Operator models are discovered, each kind has one of them, and the plain roofline is the fallback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from calibration.datasets.works import product
from tests.support.plain_devices import plain_device

from foretrain.errors import InvalidRequest
from foretrain.facts.calibrations import forget_constants
from foretrain.facts.devices import device
from foretrain.prediction.operators import attention, convolution, matrix, pricing
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.pricing import OperatorModel, RooflineModel, table
from foretrain.registry import DuplicateName
from foretrain.workloads.ops import Kind


def test_every_kind_is_priced_and_the_fallback_is_last() -> None:
    for cost_model in pricing.CHOICES:
        models = pricing.operator_models(device("t4"), cost_model)
        assert isinstance(models[-1], RooflineModel)
        assert frozenset(Kind) - {Kind.VIEW} <= frozenset().union(*(model.kinds for model in models))


def test_an_unknown_cost_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'crystal-ball' is not one of foretrain, roofline, per-layer"):
        pricing.operator_models(device("t4"), "crystal-ball")


def test_two_models_of_one_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class SecondMatrixModel(MatrixModel):
        name: ClassVar[str] = "matrix-again"

    def both(*_: object) -> Iterator[OperatorModel]:
        yield from (MatrixModel(), SecondMatrixModel())

    monkeypatch.setattr(pricing, "discover", both)
    with pytest.raises(DuplicateName, match="'products' and 'matrix-again' both price linear, matmul"):
        pricing._models.__wrapped__("gpu", "foretrain")


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


def test_a_model_reads_its_calibration_when_it_first_prices() -> None:
    forget_constants()
    a100 = device("a100-pcie-40gb")
    works = table([product(1, 256, 256, 256, "float32", is_linear=True)])
    models = pricing.operator_models(a100)
    assert matrix.calibration.cache_info().currsize == 0
    next(model for model in models if Kind.LINEAR in model.kinds).seconds(works, a100)
    assert matrix.calibration.cache_info().currsize == 1
    assert attention.calibration.cache_info().currsize == convolution.calibration.cache_info().currsize == 0


def test_prices_of_a_table_do_not_depend_on_the_devices_priced_before() -> None:
    """Columns are shared by devices, so none may hold what belongs to one of them."""
    works = [product(1, 100 * size, 64, 512, "float16", is_linear=True) for size in (1, 2, 3)]
    shared = table(works)
    for name in ("v100-pcie-32gb", "h100-sxm", "mi300x", "v100-pcie-32gb"):
        alone = MatrixModel().seconds(table(works), device(name))
        assert MatrixModel().seconds(shared, device(name)).tolist() == alone.tolist()
