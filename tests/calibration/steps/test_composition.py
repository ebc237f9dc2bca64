"""Operators fall into the classes their names say, and classes add up to the priced step."""

from __future__ import annotations

import pytest
from calibration.datasets.profet import ProfetStep
from calibration.steps.keras_harness import classes, composition

from foretrain.facts.devices import device
from foretrain.prediction.operators.pricing import operator_models, price
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_at


@pytest.mark.parametrize(("model", "has_depthwise"), [("LeNet5", False), ("MobileNetV2", True)])
def test_classes_add_up_to_the_step(model: str, has_depthwise: bool) -> None:
    graph = graph_at(ProfetStep(model, 32, 16, "t4", 1.0).workload, 16)
    ops, target = operators(graph), device("t4")
    priced = price(ops, target, operator_models(target))
    found = composition(graph, priced, classes(ops), target, 1)
    assert sum(found.seconds.values()) == pytest.approx(float(priced.seconds.sum()))
    assert ("grouped forward" in found.seconds) == has_depthwise
    assert (found.depthwise_seconds > 0) == has_depthwise
    assert found.filter_seconds > 0


def test_biases_are_a_pass_over_outputs() -> None:
    """LeNet5's convolutions write 6 x 28² and 16 x 10² values an image; MobileNetV2 has no biases."""
    target = device("t4")
    found = []
    for model in ("LeNet5", "MobileNetV2"):
        graph = graph_at(ProfetStep(model, 32, 16, "t4", 1.0).workload, 16)
        ops = operators(graph)
        priced = price(ops, target, operator_models(target))
        found.append(composition(graph, priced, classes(ops), target, 1).bias_seconds)
    from foretrain.prediction.operators import streaming

    bandwidth = target.memory_bytes_per_second * streaming.calibration().share(target)
    assert found[0] == pytest.approx(2 * 4 * 16 * (6 * 28**2 + 16 * 10**2) / bandwidth)
    assert found[1] == 0
