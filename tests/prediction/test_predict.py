"""The step half of a prediction: parts, phases, throughput, and how input and computing combine."""

from __future__ import annotations

import pytest
from foretrain.prediction.step.timing import model_flop, throughput
from tests.support.step_models import FixedSteps

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.facts.hardware import hardware
from foretrain.prediction.advice.bottleneck import Limit
from foretrain.prediction.answer import Prediction, StepAnswer
from foretrain.prediction.cost_models.step_models import CostModel, OperatorCostModel
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.operators.host import HostModel
from foretrain.prediction.predict import predict
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.workload import traced

HOST = HostModel(1e-5, 1e-5, 1e-5, 1e-6, 1e-6, 0.5, p10=0.8, p90=1.2, source="a host")
IMAGES = workload_of(WorkloadRequest("mnist-cnn", batch=100))
TEXT = workload_of(WorkloadRequest("gpt2", batch=2, seq_len=64))
TEXT_GRAPH = traced(TEXT)


def told(
    model: CostModel | str = "roofline", options: InputOptions | None = None, on: str = "t4"
) -> Prediction:
    return predict(IMAGES, hardware(on), model=model, input_options=options, with_advice=False)


def step_of(prediction: Prediction) -> StepAnswer:
    assert prediction.step is not None
    return prediction.step


@pytest.mark.parametrize("model", ["roofline", OperatorCostModel("foretrain", HOST)])
@pytest.mark.parametrize("dataset", [None, "cifar10", "imagenet-jpeg", "synthetic"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_parts_sum_to_the_step(model: CostModel | str, dataset: str | None, prefetch: bool) -> None:
    step = step_of(told(model, InputOptions(dataset, "hdd", prefetch=prefetch)))
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.seconds.p50, rel=1e-9)
    assert step.seconds.p10 <= step.seconds.p50 <= step.seconds.p90
    assert all(part.source for part in step.parts)


def test_loading_ahead_leaves_the_longer_and_in_turn_the_sum() -> None:
    samples = InputOptions("imagenet", "hdd")  # 100 samples: 0.631 s
    in_turn = InputOptions("imagenet", "hdd", workers=100, prefetch=False)
    assert step_of(told(FixedSteps(1.0), samples)).seconds.p50 == pytest.approx(1.0)
    slower = step_of(told(FixedSteps(0.1), samples))
    assert slower.seconds.p50 == pytest.approx(slower.input_seconds) == pytest.approx(0.631, rel=1e-3)
    assert {part.name for part in slower.hidden_parts} >= {"forward linear"}
    both = step_of(told(FixedSteps(1.0), in_turn))
    assert both.seconds.p50 == pytest.approx(1.0 + both.input_seconds)


def test_phases_and_input_of_a_given_step() -> None:
    step = step_of(told(FixedSteps(device_seconds=2.0, waiting_seconds=1.0)))
    assert step.forward_seconds == pytest.approx(1)
    assert step.backward_seconds == pytest.approx(2)
    assert step.optimizer_seconds == 0
    assert step.waiting_for_launches_seconds == 1
    assert step.communication_seconds == step.exposed_communication_seconds == 0


def test_phases_sum_to_the_step_where_nothing_else_counts() -> None:
    step = step_of(told("roofline", InputOptions("synthetic")))
    phases = step.forward_seconds + step.backward_seconds + step.optimizer_seconds
    assert phases == pytest.approx(step.seconds.p50)


def test_throughput_and_utilisation_by_hand() -> None:
    graph, t4 = TEXT_GRAPH, device("t4")
    found = throughput(graph, t4, 0.5)
    assert found.samples_per_second == 4
    assert found.tokens_per_second == 256
    assert found.mfu == pytest.approx(model_flop(graph) / 0.5 / t4.sheet.number("fp32_flop_per_second"))


def test_images_have_no_tokens() -> None:
    answer = told()
    assert answer.throughput is not None
    assert answer.throughput.tokens_per_second is None


def test_recomputed_work_is_no_work_of_the_model() -> None:
    request = WorkloadRequest("gpt2", batch=2, seq_len=64, checkpoint_activations=True)
    lean = traced(workload_of(request))
    assert model_flop(lean) == pytest.approx(model_flop(TEXT_GRAPH))


def test_half_precision_is_measured_against_the_peak_of_tensor_cores() -> None:
    half = traced(workload_of(WorkloadRequest("gpt2", batch=2, seq_len=64, precision="fp16")))
    t4 = device("t4")
    expected = model_flop(half) / t4.sheet.number("fp16_tensor_flop_per_second")
    assert throughput(half, t4, 1.0).mfu == pytest.approx(expected)


def test_knowledge_coverage_and_sources_are_the_models() -> None:
    answer = told(FixedSteps())
    assert answer.knowledge is Knowledge.MEASURED
    assert answer.coverage is not None
    assert answer.coverage.modelled_share == 1
    assert "a clock" in answer.sources
    assert answer.memory.source in answer.sources


@pytest.mark.parametrize(
    ("on", "knowledge"), [("t4", Knowledge.CALIBRATED), ("rtx3060", Knowledge.EXTRAPOLATED)]
)
def test_a_device_that_was_measured_is_calibrated_and_another_is_not(on: str, knowledge: Knowledge) -> None:
    assert told(OperatorCostModel("foretrain", HOST), on=on).knowledge is knowledge


def test_a_slow_host_shows_in_the_step_and_the_verdict() -> None:
    slow = HostModel(1e-2, 1e-2, 1e-2, 0.0, 0.0, 0.5, p10=1.0, p90=1.0, source="a slow host")
    answer = told(OperatorCostModel("foretrain", slow))
    assert answer.bottleneck is not None
    assert answer.bottleneck.kind is Limit.LAUNCH
    assert step_of(answer).parts[0].name == "waiting for launches"


def test_what_does_not_fit_is_told_with_what_would() -> None:
    large = workload_of(WorkloadRequest("gpt2", batch=64, seq_len=512))
    answer = predict(large, hardware("gtx1060-6gb"), model="roofline")
    assert answer.bottleneck is not None
    assert answer.bottleneck.kind is Limit.MEMORY
    assert answer.bottleneck.advice
    assert all(advice.gain is None for advice in answer.bottleneck.advice)
    assert answer.step is not None


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="model 'magic' is not one of foretrain"):
        told("magic")
