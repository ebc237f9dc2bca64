"""One prediction: parts, phases, throughput, how input and computing combine, and which batch is meant."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.scenarios import NO_INPUT, context_on, predicted, workload
from tests.support.step_models import FixedSteps

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.advice.bottleneck import Limit
from foretrain.prediction.answer import Prediction, StepAnswer
from foretrain.prediction.cost_models import CostModel, OperatorCostModel
from foretrain.prediction.operators.host import HostModel
from foretrain.prediction.operators.pricing import Knowledge
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Throughput, evaluate, model_flop
from foretrain.workloads.workload import Workload, trace_workload

HOST = HostModel(1e-5, 0.0, 1e-5, 1e-5, 0.0, 5e-6, 0.0, 1e-5, p10=0.8, p90=1.2, source="a host")
IMAGES = workload("mnist-cnn", batch=100)
TEXT = workload("gpt2", batch=2, seq_len=64)
TEXT_GRAPH = trace_workload(TEXT)


def prediction_of(
    model: CostModel | str = "roofline", options: InputOptions = NO_INPUT, on: str = "t4"
) -> Prediction:
    return predicted(IMAGES, on, model, options)


def step_of(*args: Any, **options: Any) -> StepAnswer:
    return prediction_of(*args, **options).step


@pytest.mark.parametrize("model", ["roofline", OperatorCostModel("foretrain", HOST)])
@pytest.mark.parametrize("dataset", [None, "cifar10", "imagenet-jpeg", "synthetic"])
@pytest.mark.parametrize("prefetch", [True, False])
def test_parts_sum_to_the_step(model: CostModel | str, dataset: str | None, prefetch: bool) -> None:
    step = step_of(model, InputOptions(dataset=dataset, storage="hdd", prefetch=prefetch))
    assert sum(part.seconds for part in step.parts) == pytest.approx(step.seconds.p50, rel=1e-9)
    assert step.seconds.p10 <= step.seconds.p50 <= step.seconds.p90
    assert all(part.source for part in step.parts)


def test_loading_ahead_leaves_the_longer_and_in_turn_the_sum() -> None:
    samples = InputOptions(dataset="imagenet", storage="hdd")  # 100 samples: 0.631 s
    in_turn = InputOptions(dataset="imagenet", storage="hdd", loader_workers=100, prefetch=False)
    assert step_of(FixedSteps(1.0), samples).seconds.p50 == pytest.approx(1.0)
    slower = step_of(FixedSteps(0.1), samples)
    assert slower.seconds.p50 == pytest.approx(slower.input_seconds) == pytest.approx(0.631, rel=1e-3)
    assert {part.name for part in slower.hidden_parts} >= {"backward copy"}
    both = step_of(FixedSteps(1.0), in_turn)
    assert both.seconds.p50 == pytest.approx(1.0 + both.input_seconds)


def test_phases_and_input_of_a_given_step() -> None:
    step = step_of(FixedSteps(device_seconds=2.0, waiting_seconds=1.0))
    assert step.forward_seconds == pytest.approx(1)
    assert step.backward_seconds == pytest.approx(2)
    assert step.optimizer_seconds == 0
    assert step.waiting_for_launches_seconds == pytest.approx(1)
    assert step.communication_seconds == step.exposed_communication_seconds == 0


def test_phases_sum_to_the_step_where_nothing_else_counts() -> None:
    step = step_of("roofline", InputOptions(dataset="synthetic"))
    phases = step.forward_seconds + step.backward_seconds + step.optimizer_seconds
    assert phases == pytest.approx(step.seconds.p50)


def throughput_of(of: Workload, seconds: float) -> Throughput:
    """The throughput of steps that take a given time on one T4."""
    context = context_on(of, "t4", FixedSteps(seconds))
    return evaluate(context, configure(context, Parallelism())).throughput


def test_throughput_and_utilisation_by_hand() -> None:
    throughput = throughput_of(TEXT, 0.5)
    assert throughput.samples_per_second == pytest.approx(4)
    assert throughput.tokens_per_second == pytest.approx(256)
    peak = device("t4").sheet.number("fp32_flop_per_second")
    assert throughput.mfu == pytest.approx(model_flop(TEXT_GRAPH) / 0.5 / peak)


def test_images_have_no_tokens() -> None:
    assert prediction_of().throughput.tokens_per_second is None


def test_recomputed_work_is_no_work_of_the_model() -> None:
    lean = trace_workload(workload("gpt2", batch=2, seq_len=64, checkpoint_activations=True))
    assert model_flop(lean) == pytest.approx(model_flop(TEXT_GRAPH))


def test_half_precision_is_measured_against_the_peak_of_tensor_cores() -> None:
    half = workload("gpt2", batch=2, seq_len=64, precision="fp16")
    expected = model_flop(trace_workload(half)) / device("t4").sheet.number("fp16_tensor_flop_per_second")
    assert throughput_of(half, 1.0).mfu == pytest.approx(expected)


def test_knowledge_coverage_and_sources_are_those_of_the_cost_model() -> None:
    answer = prediction_of(FixedSteps())
    assert answer.knowledge is Knowledge.MEASURED
    assert answer.coverage.modelled_share == 1
    assert "a clock" in answer.sources
    assert answer.memory.source in answer.sources


@pytest.mark.parametrize(
    ("on", "knowledge"), [("t4", Knowledge.CALIBRATED), ("rtx3060", Knowledge.EXTRAPOLATED)]
)
def test_a_device_that_was_measured_is_calibrated_and_another_is_not(on: str, knowledge: Knowledge) -> None:
    assert prediction_of(OperatorCostModel("foretrain", HOST), on=on).knowledge is knowledge


def test_a_slow_host_shows_in_the_step_and_the_verdict() -> None:
    slow = HostModel(1e-2, 0.0, 1e-2, 1e-2, 0.0, 5e-3, 0.0, 1e-2, p10=1.0, p90=1.0, source="a slow host")
    answer = prediction_of(OperatorCostModel("foretrain", slow))
    assert answer.bottleneck.kind is Limit.LAUNCH
    assert answer.step.parts[0].name == "waiting for launches"


def test_a_step_that_does_not_fit_is_answered_with_what_would() -> None:
    large = workload("gpt2", batch=64, seq_len=512)
    answer = predicted(large, "gtx1060-6gb", "roofline", advice=True)
    assert answer.bottleneck.kind is Limit.MEMORY
    assert answer.bottleneck.advice
    assert all(advice.gain is None for advice in answer.bottleneck.advice)
    remedies = [(remedy.change, remedy.bytes, remedy.fits) for remedy in answer.memory.advice]
    listed = [(advice.change, advice.memory_bytes, advice.fits) for advice in answer.bottleneck.advice]
    assert listed == remedies
    assert answer.step.seconds.p50 > 0


def test_an_unknown_cost_model_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="model 'magic' is not one of foretrain"):
        prediction_of("magic")


@pytest.mark.parametrize("advice", [False, True])
def test_batch_and_global_batch_of_one_device_are_the_same_request(advice: bool) -> None:
    by_batch = predicted(workload("mnist-cnn", batch=192), "t4", advice=advice)
    by_global_batch = predicted(workload("mnist-cnn"), "t4", advice=advice, global_batch=192)
    both = predicted(workload("mnist-cnn", batch=192), "t4", advice=advice, global_batch=192)
    assert by_batch.to_dict() == by_global_batch.to_dict() == both.to_dict()
    assert by_batch.batch == by_global_batch.parallelism.global_batch == 192


def test_batch_and_global_batch_of_many_devices_are_the_same_step() -> None:
    by_batch = predicted(workload("mnist-cnn", batch=48), "t4:4").to_dict()
    by_global_batch = predicted(workload("mnist-cnn"), "t4:4", global_batch=192).to_dict()
    assert by_batch == by_global_batch


@pytest.mark.parametrize(
    ("on", "strategy", "global_batch", "message"),
    [
        ("t4", "ddp", 64, "batch 32 on 1 replica is a global batch of 32, but global_batch is 64; give one"),
        ("t4:4", "ddp", 64, "batch 32 on 4 replicas is a global batch of 128, but global_batch is 64"),
        ("t4:4", "tp=2,dp=2", 128, "batch 32 on 2 replicas is a global batch of 64, but global_batch is 128"),
        ("t4:4", "auto", 64, "batch 32 on 4 devices is a global batch of 128, but global_batch is 64"),
    ],
)
def test_batch_and_global_batch_that_disagree_are_refused(
    on: str, strategy: str, global_batch: int, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        predicted(workload("mnist-cnn", batch=32), on, strategy=strategy, global_batch=global_batch)


def test_a_min_batch_is_for_heterogeneous_clusters() -> None:
    with pytest.raises(InvalidRequest, match="`min_batch` is for heterogeneous clusters"):
        predicted(IMAGES, "t4:2", min_batch=4)
