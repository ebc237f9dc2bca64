"""Predictions in a loop share what they derive, and are the same as each of them alone."""

from __future__ import annotations

from tests.support.scenarios import context_on, predicted

from foretrain.facts.devices import devices
from foretrain.prediction import cost_models
from foretrain.prediction.advice.scaling_curve import ResizedStep
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import evaluate
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_at, workload_of

MODEL = workload_of(WorkloadRequest("cifar-resnet20", batch=64))


def test_a_prediction_does_not_depend_on_those_before_it() -> None:
    first = predicted(MODEL, "t4:2", advice=True).to_dict()
    for other in ("rtx3090:2", "t4", "t4:4"):
        predicted(MODEL.at(batch=32), other, advice=True)
        predicted(MODEL, other, advice=True)
    assert predicted(MODEL, "t4:2", advice=True).to_dict() == first


def test_a_graph_is_priced_once_on_a_device_and_keeps_its_prices_on_a_few() -> None:
    graph, model = graph_at(MODEL, 64), OperatorCostModel()
    known = [each for each in devices().values() if each.is_gpu and each.vendor == "nvidia"]
    priced = model.price(graph, known[0])
    assert model.price(graph, known[0]) is priced
    for each in known[1:20]:
        model.price(graph, each)
    again = model.price(graph, known[0])
    assert again is not priced
    assert (again.priced.seconds == priced.priced.seconds).all()
    assert len(cost_models._prices(graph)) <= cost_models._DEVICES_KEPT


def test_a_number_of_devices_is_evaluated_once_and_priced_as_any_other() -> None:
    context = context_on(MODEL, "t4:4")
    now = evaluate(context, configure(context, Parallelism()))
    resized = ResizedStep(now, is_batch_fixed=False)
    assert resized.on(4) is now
    assert resized.on(2) is resized.on(2)
    assert resized.on(2).configuration.layout.devices == 2
    assert resized.on(2).step.priced is now.step.priced, "the same graph on the same device"
