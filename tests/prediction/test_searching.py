"""The search over layouts: blocks, sketches against predictions in full, and the best against brute force."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.support.divided_graphs import matrix_flop
from tests.support.hand_made_steps import gpt2, graph, environment
from tests.support.smaller_devices import with_memory

from foretrain.errors import Infeasible, InvalidRequest
from foretrain.facts.hardware import hardware
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.evaluation import Evaluation, StepConfiguration, StepContext, evaluate
from foretrain.prediction.many_devices import Parallelism, step_context
from foretrain.prediction.search.blocks import AFTER, BEFORE, blocks_of
from foretrain.prediction.search.search import PREDICTED, Ranking, search
from foretrain.prediction.search.sketch import block_costs, sketch
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.prediction.step.parallel import spread
from foretrain.prediction.strategies.catalogue import layout_of
from foretrain.prediction.strategies.layout import Layout
from foretrain.workloads.requests import WorkloadRequest, workload_of


@cache
def asked(model: str, on: str, batch: int = 4) -> StepContext:
    workload = workload_of(WorkloadRequest(model, batch=batch))
    return step_context(workload, hardware(on), Parallelism(), OperatorCostModel(), InputOptions())


def test_gpt2_is_twelve_blocks_alike_between_two_others() -> None:
    found = blocks_of(gpt2())
    assert found.names == (BEFORE, *(f"blocks.{number}" for number in range(12)), AFTER)
    assert found.counts.tolist() == [1, 12, 1]
    assert matrix_flop(found.condensed) < matrix_flop(gpt2())


def test_blocks_stand_for_all_like_them() -> None:
    """The work of one of each kind, as often as it occurs, is that of the model."""
    found = blocks_of(gpt2())
    at = environment("a100-sxm-80gb:4")
    costs = block_costs(found, found.condensed, Layout(""), at)
    whole = spread(gpt2(), Layout(""), 1, at)
    assert len(costs.forward) == 14
    body = costs.forward.sum() + costs.backward.sum()
    updating = whole.seconds - body
    assert body == pytest.approx(whole.run.computing_seconds - updating, rel=0.05)
    table = next(b for b in gpt2().buffers if b.name == "tokens.weight")  # tied: held at both ends
    held = 4 * gpt2().parameters + gpt2().specs[table.spec].bytes
    assert costs.parameter_bytes.sum() == pytest.approx(held, rel=0.01)


@pytest.mark.parametrize("model", ["mnist-cnn", "voice-linear", "voice-conv", "resnet18"])
def test_any_model_is_a_row_of_blocks(model: str) -> None:
    of = graph(model)
    found = blocks_of(of)
    costs = block_costs(found, found.condensed, Layout(""), environment("t4:2"))
    assert len(costs.forward) == len(found) == found.counts.sum()
    assert (costs.forward >= 0).all()
    assert costs.parameter_bytes.sum() == pytest.approx(4 * of.parameters, rel=0.01)


LAYOUTS = [
    "ddp", "zero1", "zero2", "zero3", "tp=2,dp=2", "tp=2,sp,dp=2", "tp=4", "pp=2,dp=2", "pp=4", "tp=2,pp=2",
    "pp=2,dp=2,zero=1", "pp=2,dp=2,zero=2", "tp=2,dp=2,zero=3",
]  # fmt: skip


@pytest.mark.parametrize("strategy", LAYOUTS)
@pytest.mark.parametrize("micro_batches", [1, 8])
def test_sketches_are_near_the_prediction_in_full(strategy: str, micro_batches: int) -> None:
    of, at = graph("gpt2", batch=8, seq_len=64), environment("a100-sxm-80gb:4")
    layout, blocks = layout_of(strategy, 4, 4), blocks_of(of)
    only = replace(layout, pipeline=1, data=1, shard=1, zero_stage=0)
    told = sketch(block_costs(blocks, blocks.condensed, only, at), layout, micro_batches, at)
    whole = spread(of, layout, micro_batches, at)
    assert told.seconds == pytest.approx(whole.seconds, rel=0.1)
    assert told.fits


def test_sketches_need_less_memory_the_more_is_shared() -> None:
    of, at = gpt2(), environment("a100-sxm-80gb:4")
    blocks = blocks_of(of)
    costs = block_costs(blocks, blocks.condensed, Layout(""), at)
    needed = [
        sketch(costs, layout_of(name, 4, 4), 1, at).bytes for name in ("ddp", "zero1", "zero2", "zero3")
    ]
    assert needed == sorted(needed, reverse=True)
    assert len(set(needed)) == 4


def ranking_of(context: StepContext, global_batch: int) -> Ranking:
    found = search(context, global_batch)
    assert isinstance(found, Ranking)
    return found


def in_full(context: StepContext, found: Ranking) -> list[Evaluation]:
    """Every candidate of a search that fits, predicted in full."""
    every = []
    for candidate in found.candidates:
        options = replace(context.workload.options, checkpoint_activations=candidate.is_checkpointed)
        asked_so = replace(context, workload=replace(context.workload, options=options))
        evaluation = evaluate(asked_so, candidate.configuration)
        if evaluation.memory.fits:
            every.append(evaluation)
    return every


@pytest.mark.parametrize(
    ("model", "on", "global_batch"),
    [("mnist-cnn", "t4:4", 64), ("voice-linear", "gtx1080ti:4", 80), ("voice-linear", "t4:2x2", 16)],
)
def test_what_is_found_is_what_brute_force_finds(model: str, on: str, global_batch: int) -> None:
    context = asked(model, on)
    found = ranking_of(context, global_batch)
    best = min(in_full(context, found), key=lambda evaluation: evaluation.seconds)
    assert found.best.seconds <= 1.02 * best.seconds
    assert found.best.configuration.global_batch == global_batch
    assert found.best.memory.fits
    assert found.best.configuration.layout.devices == hardware(on).devices


def test_a_ranking_tells_the_fastest_first() -> None:
    found = ranking_of(asked("voice-linear", "gtx1080ti:4"), 80)
    times = [evaluation.seconds for evaluation in found.evaluations]
    assert times == sorted(times)
    assert len(times) <= PREDICTED
    assert found.fitting <= len(found.candidates)
    assert all(candidate.configuration.layout.devices == 4 for candidate in found.candidates)
    names = {candidate.name for candidate in found.candidates}
    assert len(names) == len(found.candidates)


def test_every_name_means_its_layout() -> None:
    for candidate in ranking_of(asked("voice-linear", "gtx1080ti:4"), 80).candidates:
        layout = candidate.configuration.layout
        assert layout_of(layout.name, 4, 4) == layout


def test_nothing_fits_is_an_answer() -> None:
    workload = workload_of(WorkloadRequest("mnist-cnn", batch=4))
    lean = step_context(
        workload, with_memory("t4:4", 1e9), Parallelism(), OperatorCostModel(), InputOptions()
    )
    found = search(lean, 64)
    assert isinstance(found, Infeasible)
    assert "leanest of" in str(found)
    assert "use more devices" in str(found)


def test_a_batch_that_cannot_be_shared_out_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="4 or a multiple of it would do"):
        search(asked("mnist-cnn", "t4:4"), 0)


def test_micro_batches_are_powers_of_two_that_divide() -> None:
    for candidate in ranking_of(asked("mnist-cnn", "t4:4"), 48).candidates:
        configuration = candidate.configuration
        assert isinstance(configuration, StepConfiguration)
        assert configuration.micro_batch & (configuration.micro_batch - 1) == 0
        assert configuration.micro_batch * configuration.micro_batches * configuration.layout.replicas == 48


def test_sketched_times_are_finite() -> None:
    found = ranking_of(asked("mnist-cnn", "t4:4"), 64)
    assert np.isfinite([candidate.sketch.seconds for candidate in found.candidates]).all()
    assert set(found.best_with) <= {
        "data parallelism alone", "ZeRO or FSDP alone", "tensor parallelism", "a pipeline",
        "tensor parallelism and a pipeline",
    }  # fmt: skip
