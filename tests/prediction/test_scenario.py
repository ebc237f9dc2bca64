"""Evaluations: memory by strategy, throughput of all devices, stragglers, and batches that do not split."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tests.support.hand_made_steps import graph
from tests.support.scenarios import context_on, workload

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import hardware
from foretrain.prediction.memory.estimate import fullest_stage, memory_options
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import configure
from foretrain.prediction.scenario import Evaluation, StepConfiguration, evaluate
from foretrain.prediction.stragglers import SLOWEST, expected_maximum
from foretrain.prediction.strategies.program import Program
from foretrain.prediction.strategies.strategy import Layout, layout_of

ON = "gtx1080ti:4"
MIB = 1 << 20


@cache
def evaluation(
    strategy: str,
    micro_batches: int = 1,
    batch: int = 4,
    on: str = ON,
    model: str = "voice-linear",
    jitter: float = 0.0,
) -> Evaluation:
    of = workload(model, batch=batch, seq_len=64 if model == "gpt2" else None)
    context = context_on(of, on, strategy=strategy, jitter=jitter)
    return evaluate(context, configure(context, Parallelism(strategy=strategy, micro_batches=micro_batches)))


def test_more_sharing_needs_less_memory() -> None:
    def needed(strategy: str) -> float:
        return evaluation(strategy, model="gpt2", on="a100-sxm-80gb:4").memory.bytes

    assert needed("ddp") > needed("zero1") > needed("zero2") > needed("zero3")
    assert needed("zero3") == needed("fsdp")
    assert needed("ddp") > needed("tp=4")
    assert needed("ddp") > needed("pp=4")


def _communicators(strategy: str, on: str, framework: str = "pytorch") -> float:
    of = workload("gpt2", batch=8, seq_len=64, framework=framework)
    context = context_on(of, on, strategy=strategy)
    step = evaluate(context, configure(context, Parallelism(strategy=strategy)))
    return sum(part.value for part in step.memory.estimate.parts if part.name == "communicators")


def test_communicators_by_hand() -> None:
    """688 MiB each among A100 with NVLink (300 GB/s), 544 MiB between two, by bandwidth on other links."""
    node, nodes = "a100-sxm-80gb:4", "a100-sxm-80gb:4x2"
    assert _communicators("ddp", "a100-sxm-80gb:1") == 0
    assert _communicators("ddp", node) == _communicators("fsdp", node) == 688 * MIB
    assert _communicators("tp=4", node) == 2 * 688 * MIB  # of all devices, and of the tensor-parallel ones
    assert _communicators("tp=2,dp=2", node) == (688 + 2 * 544) * MIB
    assert _communicators("tp=4", node, "megatron-deepspeed") == 3 * 688 * MIB
    assert _communicators("ddp", "h100-sxm:8") == 1.5 * 688 * MIB  # 450 GB/s
    network = evaluation("ddp", on=nodes).context.environment.network
    assert network.inter is not None
    share = network.inter.nominal_bytes_per_second / 4 / 300e9
    assert _communicators("ddp", nodes) == pytest.approx(688 * MIB * share, rel=1e-6)


def test_blocks_between_embedding_and_loss_keep_their_inputs_under_megatron() -> None:
    """GPT-2 adds positions in the module of its loss: what lies between is no part of the loss."""
    parts = evaluation("tp=4", batch=32, model="gpt2", on="a100-sxm-80gb:4").memory.estimate.parts
    held = sum(part.value for part in parts if part.name == "saved activations")
    assert held >= 12 * (32 * 64 * 768 * 4) / 4  # each of 12 blocks, FP32, tokens divided by 4


def test_zero_1_shares_the_optimizers_state() -> None:
    """Adam's two moments, 8 bytes a parameter: three quarters of them leave the device."""
    held = {
        strategy: sum(
            part.value for part in evaluation(strategy).memory.estimate.visible if "optimizer" in part.name
        )
        for strategy in ("ddp", "zero1")
    }
    assert held["zero1"] == pytest.approx(held["ddp"] / 4, rel=0.05)


def test_micro_batches_save_activations_and_keep_gradients() -> None:
    many = 4096  # so that activations count
    assert evaluation("ddp", 16, many).memory.bytes < evaluation("ddp", 1, many).memory.bytes
    assert memory_options(Program(graph("mnist-cnn"), micro_batches=2), 1.0, Layout("ddp")).keep_gradients
    assert not memory_options(Program(graph("mnist-cnn")), 1.0, Layout("ddp")).keep_gradients


def test_stages_hold_the_micro_batches_in_flight() -> None:
    of, device = graph("voice-linear", batch=8192), hardware(ON).device
    one, three = (
        fullest_stage((Program(of, micro_batches=4),), (held,), Layout("ddp"), device)[1].bytes
        for held in (1.0, 3.0)
    )
    assert three > one
    gpipe, in_turn = (evaluation(f"pp=2,dp=2,schedule={name}", 8, 8192) for name in ("gpipe", "1f1b"))
    assert list(gpipe.step.run.in_flight) == [8, 8]
    assert list(in_turn.step.run.in_flight) == [2, 1]
    assert gpipe.memory.bytes > in_turn.memory.bytes


def test_the_fullest_stage_is_that_with_most_memory() -> None:
    result = evaluation("pp=4", 4)
    stage, memory = result.fullest
    run, at = result.step.run, result.context.environment
    each = [
        fullest_stage((part,), (held,), result.configuration.layout, at.device, at.network)[1].bytes
        for part, held in zip(run.stages, run.in_flight, strict=True)
    ]
    assert memory.bytes == pytest.approx(max(each), rel=0.02)
    assert each[stage] == pytest.approx(max(each), rel=0.02)


def test_throughput_counts_all_replicas() -> None:
    ddp, halves = evaluation("ddp"), evaluation("tp=2,dp=2")
    assert ddp.configuration.global_batch == 16
    assert halves.configuration.global_batch == 8
    assert ddp.samples_per_second == 16 / ddp.seconds
    assert 0 < ddp.throughput.mfu < 1
    assert ddp.throughput.tokens_per_second is None
    accumulated = evaluation("ddp", 4)
    assert accumulated.samples_per_second == 16 / accumulated.seconds


def test_tokens_of_all_replicas_and_micro_batches_are_counted() -> None:
    result = evaluation("ddp", 2, model="gpt2", on="a100-sxm-80gb:2")
    assert result.throughput.tokens_per_second == pytest.approx(64 * 4 * 2 / result.seconds)


def test_servers_that_wait_for_fewer_train_on_fewer() -> None:
    result = evaluation("ps-ksync=2", on="t4:1x4", model="voice-conv", batch=20)
    assert result.samples_per_second == pytest.approx(2 * 20 / result.seconds)


def test_jitter_makes_every_step_wait_for_the_slowest() -> None:
    even, uneven = evaluation("ddp"), evaluation("ddp", jitter=0.1)
    assert uneven.seconds == pytest.approx(expected_maximum(even.seconds, 0.1, 4))
    assert uneven.seconds > even.seconds
    (part,) = [part for part in uneven.total.parts if part.name == SLOWEST]
    assert part.value == pytest.approx(uneven.seconds - even.seconds)
    alone = evaluation("ddp", on="gtx1080ti", jitter=0.1)
    assert not [part for part in alone.total.parts if part.name == SLOWEST]


def test_batches_that_do_not_split_into_micro_batches_are_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r"6 samples .* into 4 equal micro-batches; micro_batches can be 1, 2, 3, 6"
    ):
        StepConfiguration(layout_of("ddp", 4, 4), 6, 4)


def test_a_global_batch_that_does_not_divide_over_replicas_is_refused() -> None:
    context = context_on(workload("mnist-cnn"), ON)
    message = "global_batch 10 does not divide over 4 replicas; use a multiple of 4, such as 8"
    with pytest.raises(InvalidRequest, match=message):
        configure(context, Parallelism(strategy="ddp", global_batch=10))
    assert configure(context, Parallelism(strategy="ddp", global_batch=12)).batch == 3


def test_a_pipeline_splits_its_batch_by_itself() -> None:
    context = context_on(workload("voice-conv", batch=64), ON)
    chosen = configure(context, Parallelism(strategy="pp=4"))
    every = {
        count: evaluate(context, StepConfiguration(chosen.layout, 64, count)).seconds
        for count in (1, 2, 4, 8, 16, 32, 64)
    }
    assert every[chosen.micro_batches] == min(every.values())
    assert chosen.micro_batches > 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"micro_batches": 0}, "micro_batches must be at least 1"),
        ({"global_batch": -1}, "global_batch must be at least 1"),
        ({"jitter": 1.5}, "jitter must be at least 0 and below 1, got 1.5"),
    ],
)
def test_invalid_parallelism_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Parallelism(**wrong)
