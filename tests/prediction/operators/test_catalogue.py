"""Operator models are discovered, and each kind has one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.operators import catalogue
from foretrain.prediction.operators._base import OperatorModel
from foretrain.prediction.operators.matrix import MatrixModel
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.registry import DuplicateName
from foretrain.workloads.ops import Kind


def test_every_kind_is_priced_and_the_fallback_is_last() -> None:
    for cost_model in catalogue.CHOICES:
        models = catalogue.operator_models(device("t4"), cost_model)
        assert isinstance(models[-1], RooflineModel)
        assert frozenset(Kind) - {Kind.VIEW} <= frozenset().union(*(model.kinds for model in models))


def test_an_unknown_cost_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'crystal-ball' is not one of foretrain, roofline, per-layer"):
        catalogue.operator_models(device("t4"), "crystal-ball")


def test_two_models_of_one_kind_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class SecondMatrixModel(MatrixModel):
        name: ClassVar[str] = "matrix-again"

    def both(*_: object) -> Iterator[OperatorModel]:
        yield from (MatrixModel(), SecondMatrixModel())

    monkeypatch.setattr(catalogue, "discovered", both)
    with pytest.raises(DuplicateName, match="'products' and 'matrix-again' both price linear, matmul"):
        catalogue._models.__wrapped__("gpu", "foretrain")
