"""The search over layouts: blocks, sketches against predictions in full, and the best against brute force."""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.support.divided_graphs import matrix_flop
from tests.support.hand_made_steps import environment, gpt2, graph
from tests.support.scenarios import context_on, workload
from tests.support.smaller_devices import with_memory

from foretrain.answers import Infeasible
from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import hardware
from foretrain.prediction.scenario import Evaluation, StepConfiguration, StepContext, evaluate
from foretrain.prediction.search.search import RETURNED, Ranking, search
from foretrain.prediction.search.sketch import AFTER, BEFORE, block_costs, blocks_of, sketch
from foretrain.prediction.step.parallel import predict_step
from foretrain.prediction.strategies.strategy import Layout, layout_of
from foretrain.workloads.executed import ExecutedGraph


@cache
def context_of(model: str, on: str, batch: int = 4) -> StepContext:
    return context_on(workload(model, batch=batch), on)


def test_gpt2_is_twelve_equal_blocks_between_two_others() -> None:
    blocks = blocks_of(gpt2())
    assert blocks.names == (BEFORE, *(f"blocks.{number}" for number in range(12)), AFTER)
    assert blocks.counts.tolist() == [1, 12, 1]
    assert matrix_flop(blocks.condensed.source) < matrix_flop(gpt2())


def test_one_block_of_each_kind_gives_the_costs_of_all() -> None:
    """The work of one of each kind, as often as it occurs, is that of the model."""
    blocks = blocks_of(gpt2())
    at = environment("a100-sxm-80gb:4")
    costs = block_costs(blocks, Layout(""), at)
    whole = predict_step(ExecutedGraph(gpt2()), Layout(""), 1, at)
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
    blocks = blocks_of(of)
    costs = block_costs(blocks, Layout(""), environment("t4:2"))
    assert len(costs.forward) == len(blocks) == blocks.counts.sum()
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
    sketched = sketch(block_costs(blocks, only, at), layout, micro_batches, at)
    whole = predict_step(ExecutedGraph(of), layout, micro_batches, at)
    assert sketched.seconds == pytest.approx(whole.seconds, rel=0.1)
    assert sketched.fits


def test_sketches_need_less_memory_the_more_is_shared() -> None:
    of, at = gpt2(), environment("a100-sxm-80gb:4")
    blocks = blocks_of(of)
    costs = block_costs(blocks, Layout(""), at)
    needed = [
        sketch(costs, layout_of(name, 4, 4), 1, at).bytes for name in ("ddp", "zero1", "zero2", "zero3")
    ]
    assert needed == sorted(needed, reverse=True)
    assert len(set(needed)) == 4


def ranking_of(context: StepContext, global_batch: int) -> Ranking:
    ranking = search(context, global_batch)
    assert isinstance(ranking, Ranking)
    return ranking


def in_full(context: StepContext, ranking: Ranking) -> list[Evaluation]:
    """Every candidate of a search that fits, predicted in full."""
    every = []
    for candidate in ranking.candidates:
        options = replace(context.workload.options, checkpoint_activations=candidate.is_checkpointed)
        changed = replace(context, workload=replace(context.workload, options=options))
        evaluation = evaluate(changed, candidate.configuration)
        if evaluation.memory.fits:
            every.append(evaluation)
    return every


@pytest.mark.parametrize(
    ("model", "on", "global_batch"),
    [("mnist-cnn", "t4:4", 64), ("voice-linear", "gtx1080ti:4", 80), ("voice-linear", "t4:2x2", 16)],
)
def test_the_best_is_that_of_brute_force(model: str, on: str, global_batch: int) -> None:
    context = context_of(model, on)
    ranking = ranking_of(context, global_batch)
    best = min(in_full(context, ranking), key=lambda evaluation: evaluation.seconds)
    assert ranking.best.seconds <= 1.02 * best.seconds
    assert ranking.best.configuration.global_batch == global_batch
    assert ranking.best.memory.fits
    assert ranking.best.configuration.layout.devices == hardware(on).devices


def test_a_ranking_lists_the_fastest_first() -> None:
    ranking = ranking_of(context_of("voice-linear", "gtx1080ti:4"), 80)
    times = [evaluation.seconds for evaluation in ranking.evaluations]
    assert times == sorted(times)
    assert len(times) <= RETURNED
    assert ranking.fitting <= len(ranking.candidates)
    assert all(candidate.configuration.layout.devices == 4 for candidate in ranking.candidates)
    names = {candidate.name for candidate in ranking.candidates}
    assert len(names) == len(ranking.candidates)


def test_every_name_parses_to_its_layout() -> None:
    for candidate in ranking_of(context_of("voice-linear", "gtx1080ti:4"), 80).candidates:
        layout = candidate.configuration.layout
        assert layout_of(layout.name, 4, 4) == layout


def test_nothing_fits_is_an_answer() -> None:
    lean = context_on(workload("mnist-cnn", batch=4), with_memory("t4:4", 1e9))
    answer = search(lean, 64)
    assert isinstance(answer, Infeasible)
    assert "leanest of" in str(answer)
    assert "use more devices" in str(answer)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="use a multiple of 4"):
        search(context_of("mnist-cnn", "t4:4"), 0)


def test_micro_batches_are_powers_of_two_that_divide() -> None:
    for candidate in ranking_of(context_of("mnist-cnn", "t4:4"), 48).candidates:
        configuration = candidate.configuration
        assert isinstance(configuration, StepConfiguration)
        assert configuration.micro_batch & (configuration.micro_batch - 1) == 0
        assert configuration.micro_batch * configuration.micro_batches * configuration.layout.replicas == 48


def test_sketched_times_are_finite() -> None:
    ranking = ranking_of(context_of("mnist-cnn", "t4:4"), 64)
    assert np.isfinite([candidate.sketch.seconds for candidate in ranking.candidates]).all()
    assert set(ranking.best_of_families) <= {
        "data parallelism alone", "ZeRO or FSDP alone", "tensor parallelism", "a pipeline",
        "tensor parallelism and a pipeline",
    }  # fmt: skip


def test_a_search_that_is_kept_gives_the_same_ranking(own_home: Path) -> None:
    context = context_of("gpt2", "a100-sxm-80gb:4")
    first, again = search(context, 16), search(context, 16)
    assert isinstance(first, Ranking)
    assert isinstance(again, Ranking)
    assert len([*(own_home / "searches").iterdir()]) == 1
    assert first.evaluated
    assert not again.evaluated  # it was read
    assert (again.candidates, again.fastest) == (first.candidates, first.fastest)
    assert again.memory_factors == first.memory_factors
    assert [each.seconds for each in again.evaluations] == [each.seconds for each in first.evaluations]
    assert [each.memory.bytes for each in again.evaluations] == [each.bytes for each in first.fastest]


def test_a_search_on_other_devices_is_kept_apart(own_home: Path) -> None:
    for on in ("a100-sxm-80gb:4", "h100-sxm:4"):
        search(context_of("gpt2", on), 16)
    assert len([*(own_home / "searches").iterdir()]) == 2


def test_a_kept_search_that_cannot_be_read_is_made_anew(own_home: Path) -> None:
    context = context_of("gpt2", "a100-sxm-80gb:4")
    search(context, 16)
    (file,) = (own_home / "searches").iterdir()
    for content in (b"nonsense", zlib.compress(b'{"layouts": 3}')):
        file.write_bytes(content)
        again = search(context, 16)
        assert isinstance(again, Ranking)
        assert again.evaluated
