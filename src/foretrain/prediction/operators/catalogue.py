"""The operator models of each cost model: all subclasses of `OperatorModel` in this package."""

from __future__ import annotations

from functools import cache
from itertools import combinations

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.prediction.operators._base import OperatorModel
from foretrain.prediction.operators.per_layer import PerLayerModel
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.registry import DuplicateName, discovered

DEFAULT = "foretrain"
CHOICES = (DEFAULT, RooflineModel.name, PerLayerModel.name)
"""The cost models that price a step operator by operator."""


def operator_models(device: Device, cost_model: str = DEFAULT) -> tuple[OperatorModel, ...]:
    """The models that together price every kind of operator on a device, the fallback last.

    An operator without a rule is priced at the roofline and reported as unmodelled.
    """
    if cost_model not in CHOICES:
        raise InvalidRequest(f"cost_model {cost_model!r} is not one of {', '.join(CHOICES)}")
    return _models(device.kind, cost_model)


def only_precision(cost_model: object, device: Device) -> str | None:
    """The one precision that a cost model has measurements of; None where it has several."""
    if not isinstance(cost_model, str) or cost_model not in CHOICES:
        return None
    return next((each.precision for each in operator_models(device, cost_model) if each.precision), None)


@cache
def _models(device_kind: str, cost_model: str) -> tuple[OperatorModel, ...]:
    models = [
        model
        for model in discovered(__name__, OperatorModel)  # type: ignore[type-abstract]
        if cost_model in model.cost_models and device_kind in model.device_kinds
    ]
    for first, second in combinations([model for model in models if not model.is_fallback], 2):
        if first.kinds & second.kinds:
            both = ", ".join(sorted(first.kinds & second.kinds))
            raise DuplicateName(f"operator models {first.name!r} and {second.name!r} both price {both}")
    return tuple(sorted(models, key=lambda model: model.is_fallback))
