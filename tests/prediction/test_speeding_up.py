"""Advice: computed by predicting again, sorted by gain, silent where nothing is to be gained."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.step_models import FixedSteps

from foretrain.facts.devices import device
from foretrain.prediction.advice.speeding_up import WORTH_SAYING, Advice, Situation, faster
from foretrain.prediction.cost_models.step_models import CostModel, OperatorCostModel
from foretrain.prediction.strategies.memory_options import MemoryOptions
from foretrain.prediction.operators.host import HostModel
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.timing import time_step
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.workload import graph_at

ROOFLINE = OperatorCostModel("roofline")


def advised(
    request: WorkloadRequest,
    on: str,
    model: CostModel = ROOFLINE,
    samples_from: InputOptions | None = None,
    largest: int = 1,
) -> tuple[Advice, ...]:
    workload = workload_of(request)
    graph = graph_at(workload, request.batch or 2)
    at = Situation(
        workload, graph, device(on), model, samples_from or InputOptions(), MemoryOptions(), largest
    )
    return faster(at, time_step(graph, at.device, model, at.input))


CONVOLUTIONS = WorkloadRequest("mnist-cnn", batch=64)


def test_changes_are_told_with_their_gain_most_first() -> None:
    found = advised(CONVOLUTIONS, "a100-sxm-80gb", largest=1024)
    names = [advice.change for advice in found]
    assert "mixed precision (bf16)" in names
    gains = [advice.gain or 0 for advice in found]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) >= WORTH_SAYING
    for advice in found:
        assert advice.fits
        assert advice.samples_per_second is not None


def test_gain_is_the_ratio_of_speeds() -> None:
    workload = workload_of(CONVOLUTIONS)
    graph, target = graph_at(workload, 64), device("a100-sxm-80gb")
    now = time_step(graph, target, ROOFLINE, InputOptions()).seconds
    tf32 = replace(graph, settings={**graph.settings, "precision": "tf32"})
    then = time_step(tf32, target, ROOFLINE, InputOptions()).seconds
    found = {advice.change: advice for advice in advised(CONVOLUTIONS, "a100-sxm-80gb")}
    if now / then >= WORTH_SAYING:
        assert found["TF32"].gain == pytest.approx(now / then)
    else:
        assert "TF32" not in found


def test_compiling_helps_a_step_that_waits_for_launches() -> None:
    slow = HostModel(1e-3, 1e-3, 1e-3, 0.0, 0.0, 0.25, p10=1.0, p90=1.0, source="a slow host")
    found = advised(CONVOLUTIONS, "t4", OperatorCostModel("foretrain", slow))
    gain = next(advice.gain for advice in found if advice.change == "compile (torch.compile)")
    assert gain is not None
    assert gain > 3


def test_a_device_without_tensor_cores_is_not_advised_to_use_them() -> None:
    names = [advice.change for advice in advised(CONVOLUTIONS, "gtx1080ti")]
    assert not any("precision" in name or name == "TF32" for name in names)


def test_what_is_done_already_is_not_advised() -> None:
    done = replace(CONVOLUTIONS, precision="bf16", channels_last=True, compile=True)
    names = [advice.change for advice in advised(done, "a100-sxm-80gb")]
    assert not any(name.startswith(("mixed", "channels", "compile")) for name in names)


def test_a_step_of_fixed_time_gains_by_the_batch_alone_and_the_least_that_suffices_is_named() -> None:
    found = advised(CONVOLUTIONS, "t4", FixedSteps(1.0), largest=256)
    assert [advice.change for advice in found] == ["batch 256"]
    assert found[0].gain == pytest.approx(4)


def test_no_batch_beyond_what_fits() -> None:
    assert advised(CONVOLUTIONS, "t4", FixedSteps(1.0), largest=127) == ()


def test_slow_input_is_told_what_would_be_enough() -> None:
    # 64 x 3.0 ms = 0.192 s of decoding against 0.05 s of training: four workers; 64 seeks take 0.38 s
    slow = InputOptions("imagenet", "hdd", workers=1)
    found = {advice.change: advice for advice in advised(CONVOLUTIONS, "t4", FixedSteps(0.05), slow)}
    both = found["4 loader workers, samples on nvme"]
    assert both.step_seconds == pytest.approx(0.05)
    assert both.memory_bytes is None
    assert "samples on nvme" in found
    assert "4 loader workers" not in found  # the disk is slower still


def test_loading_in_turn_is_advised_to_prefetch() -> None:
    in_turn = InputOptions("cifar10", prefetch=False)
    names = [advice.change for advice in advised(CONVOLUTIONS, "t4", FixedSteps(0.01), in_turn)]
    assert "prefetching" in names


def test_eager_attention_is_advised_to_fuse() -> None:
    request = WorkloadRequest("gpt2", batch=2, seq_len=512, attention="eager", no_optimizer=True)
    found = advised(request, "v100-sxm2-16gb")
    assert "fused attention (sdpa)" in [advice.change for advice in found]
