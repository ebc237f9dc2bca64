"""Advice: evaluated again with each change, sorted by gain, silent where nothing is to be gained."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.scenarios import NO_INPUT, context_on
from tests.support.step_models import FixedSteps

from foretrain.prediction.advice.bottleneck import MIN_GAIN, Advice, list_advice
from foretrain.prediction.advice.scaling_curve import ResizedStep
from foretrain.prediction.cost_models import CostModel, OperatorCostModel
from foretrain.prediction.operators.host import HostModel
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Evaluation, evaluate
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import executed_graph_at, workload_of

ROOFLINE = OperatorCostModel("roofline")
CONVOLUTIONS = WorkloadRequest("mnist-cnn", batch=64, precision="fp32")


def evaluated(
    request: WorkloadRequest, on: str, model: CostModel = ROOFLINE, options: InputOptions = NO_INPUT
) -> Evaluation:
    context = context_on(workload_of(request), on, model, options)
    return evaluate(context, configure(context, Parallelism()))


def advised(
    request: WorkloadRequest,
    on: str,
    model: CostModel = ROOFLINE,
    options: InputOptions = NO_INPUT,
    largest: int = 1,
) -> tuple[Advice, ...]:
    return list_advice(ResizedStep(evaluated(request, on, model, options), is_batch_fixed=False), largest)


def test_changes_are_listed_with_their_gain_most_first() -> None:
    changes = advised(CONVOLUTIONS, "a100-sxm-80gb", largest=1024)
    names = [each.change for each in changes]
    assert "mixed precision (bf16)" in names
    gains = [each.gain or 0 for each in changes]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) >= MIN_GAIN
    for each in changes:
        assert each.fits
        assert each.samples_per_second is not None


def test_gain_is_the_ratio_of_speeds() -> None:
    now = evaluated(CONVOLUTIONS, "a100-sxm-80gb")
    tf32 = executed_graph_at(workload_of(CONVOLUTIONS), 64).with_options(precision="tf32")
    then = evaluate(now.context, now.configuration, tf32)
    changes = {each.change: each for each in advised(CONVOLUTIONS, "a100-sxm-80gb")}
    if now.seconds / then.seconds >= MIN_GAIN:
        assert changes["TF32"].gain == pytest.approx(now.seconds / then.seconds)
    else:
        assert "TF32" not in changes


def test_compiling_helps_a_step_that_waits_for_launches() -> None:
    # compiling does not change how the optimizer is launched: here that takes no time
    slow = HostModel(1e-3, 0.0, 1e-3, 0.0, 0.0, 2.5e-4, 0.0, 1e-3, p10=1.0, p90=1.0, source="a slow host")
    changes = advised(CONVOLUTIONS, "t4", OperatorCostModel("foretrain", slow))
    gain = next(each.gain for each in changes if each.change == "compile (torch.compile)")
    assert gain is not None
    assert gain > 3


def test_a_device_without_tensor_cores_is_not_advised_to_use_them() -> None:
    names = [each.change for each in advised(CONVOLUTIONS, "gtx1080ti")]
    assert not any("precision" in name or name == "TF32" for name in names)


def test_changes_that_are_already_made_are_not_advised() -> None:
    done = replace(CONVOLUTIONS, precision="bf16", channels_last=True, compile=True)
    names = [each.change for each in advised(done, "a100-sxm-80gb")]
    assert not any(name.startswith(("mixed", "channels", "compile")) for name in names)


def test_a_step_of_fixed_time_gains_by_the_batch_alone_and_the_smallest_sufficient_one_is_named() -> None:
    changes = advised(CONVOLUTIONS, "t4", FixedSteps(1.0), largest=256)
    assert [each.change for each in changes] == ["batch 256"]
    assert changes[0].gain == pytest.approx(4)


def test_no_batch_beyond_the_largest_that_fits() -> None:
    assert advised(CONVOLUTIONS, "t4", FixedSteps(1.0), largest=127) == ()


def test_slow_input_is_advised_what_would_be_enough() -> None:
    # 64 x 5.2 ms = 0.333 s of decoding against 0.05 s of training: seven workers; 64 seeks take 0.38 s
    slow = InputOptions(dataset="imagenet", storage="hdd", loader_workers=1)
    changes = {each.change: each for each in advised(CONVOLUTIONS, "t4", FixedSteps(0.05), slow)}
    both = changes["7 loader workers, samples on nvme"]
    assert both.step_seconds == pytest.approx(0.05)
    assert both.memory_bytes == evaluated(CONVOLUTIONS, "t4").memory.bytes  # loading changes none of it
    assert "samples on nvme" in changes
    assert "7 loader workers" not in changes  # the disk is slower still


def test_loading_without_overlap_is_advised_to_prefetch() -> None:
    in_turn = InputOptions(dataset="cifar10", prefetch=False)
    names = [each.change for each in advised(CONVOLUTIONS, "t4", FixedSteps(0.01), in_turn)]
    assert "prefetching" in names


def test_eager_attention_is_advised_to_fuse() -> None:
    request = WorkloadRequest("gpt2", batch=2, seq_len=512, attention="eager", no_optimizer=True)
    changes = advised(request, "v100-sxm2-16gb")
    assert "fused attention (sdpa)" in [each.change for each in changes]
