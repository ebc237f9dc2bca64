"""How likely a step runs out of memory, and what is held on the host."""

from dataclasses import replace

import pytest
from tests.support.scenarios import context_on, workload

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.memory.estimate import chance_to_exceed, memory_calibration, spread_between
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Evaluation, evaluate
from foretrain.prediction.step.input_pipeline import host_link
from foretrain.prediction.step.offload import HOST_COPIES, HOST_UPDATE, PAGING
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.workload import Workload

GTX = "gtx1060-6gb"


def _evaluated(batch: int = 1, on: str = GTX, strategy: str = "ddp", **options: object) -> Evaluation:
    trained: Workload = workload("gpt2", batch=batch, seq_len=128)
    changed: ResolvedOptions = replace(trained.options, **options)  # type: ignore[arg-type]
    context = context_on(replace(trained, options=changed), on)
    return evaluate(context, configure(context, Parallelism(strategy=strategy)))


def _seconds(evaluation: Evaluation, part: str) -> float:
    return sum(each.value for each in evaluation.total.parts if each.name == part)


def test_a_step_that_needs_exactly_the_capacity_fits_with_even_chances() -> None:
    spread = memory_calibration().spread
    assert chance_to_exceed(8e9, 8e9) == pytest.approx(0.5)
    assert chance_to_exceed(8e9, 8e9 / spread.p90) == pytest.approx(0.1)
    assert chance_to_exceed(8e9, 8e9 / spread.p10) == pytest.approx(0.9)


def test_the_chance_grows_with_the_batch_and_agrees_with_the_verdict() -> None:
    evaluations = [_evaluated(batch) for batch in (1, 4, 8, 12, 16, 32)]
    chances = [round(each.out_of_memory_probability, 6) for each in evaluations]
    assert chances == sorted(chances)
    assert chances[0] < 0.01 and chances[-1] > 0.99
    assert [each.memory.fits for each in evaluations] == [chance <= 0.5 for chance in chances]


def test_an_optimizer_on_the_host_leaves_its_state_there_and_takes_time() -> None:
    here, there = _evaluated(), _evaluated(offload=("optimizer",))
    elements = here.graph.parameters
    saved = here.memory.bytes - there.memory.bytes
    assert saved > 0.9 * 2 * 4 * elements, "two FP32 moments"
    # Weights and moments are read and written, gradients read: 2 (4 + 8) + 4 bytes of each.
    assert _seconds(there, HOST_UPDATE) == pytest.approx(28 * elements / 20e9)
    _, rate = host_link(device(GTX))
    weights = 4 * elements / rate
    assert _seconds(there, HOST_COPIES) == pytest.approx(
        weights + max(0.0, weights - there.step.run.phases["backward"])  # type: ignore[index]
    )
    assert _seconds(here, HOST_UPDATE) == 0


def test_parameters_on_the_host_are_on_the_device_one_block_at_a_time() -> None:
    there, without = _evaluated(offload=("optimizer", "parameters")), _evaluated(offload=("optimizer",))
    elements = without.graph.parameters
    assert without.memory.bytes - there.memory.bytes > 0.5 * 4 * elements


def test_activations_on_the_host_leave_room_for_larger_batches() -> None:
    here, there = _evaluated(8), _evaluated(8, offload=("activations",))
    parts = [{part.name: part.value for part in each.memory.estimate.parts} for each in (here, there)]
    assert parts[1]["saved activations"] < 0.6 * parts[0]["saved activations"]


def test_parameters_of_several_devices_are_offloaded_only_where_they_are_sharded() -> None:
    with pytest.raises(InvalidRequest, match="requires `strategy` fsdp or zero3"):
        _evaluated(on="a100-sxm-80gb:4", offload=("parameters",))
    _evaluated(on="a100-sxm-80gb:4", strategy="zero3", offload=("parameters",))


def test_paged_state_moves_to_the_host_where_the_device_runs_short() -> None:
    resident, paged = _evaluated(8, optimizer="adamw-fused"), _evaluated(8, optimizer="paged-adamw")
    assert paged.out_of_memory_probability < resident.out_of_memory_probability
    roomy = _evaluated(1, optimizer="paged-adamw")
    assert _seconds(roomy, PAGING) == 0
    tight = next(each for each in map(_paged, (8, 10, 12, 14)) if each.memory.paged_out_bytes)
    _, rate = host_link(device(GTX))
    assert _seconds(tight, PAGING) == pytest.approx(2 * tight.memory.paged_out_bytes / rate)


def _paged(batch: int) -> Evaluation:
    return _evaluated(batch, optimizer="paged-adamw")


def test_released_gradients_are_for_one_device() -> None:
    with pytest.raises(InvalidRequest, match="for one device"):
        _evaluated(on="a100-sxm-80gb:4", gradient_release=True)
    assert _evaluated(gradient_release=True).memory.bytes < _evaluated().memory.bytes


def test_every_source_counts_once_in_the_spread_of_memory() -> None:
    spread = spread_between([(0.5, 2.0, 1), (0.5, 8.0, 99)], "test")
    assert (spread.p10, spread.p90) == pytest.approx((0.5, 4.0))
    assert spread.samples == 100
