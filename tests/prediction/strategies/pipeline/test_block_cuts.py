"""Pipelines are cut between blocks, as frameworks place them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.facts.hardware import cluster
from foretrain.prediction.answer import Prediction
from foretrain.prediction.options import Parallelism
from foretrain.prediction.predict import predict
from foretrain.prediction.scenario import Scenario
from foretrain.prediction.strategies.pipeline.cuts import (
    Chain,
    block_starts,
    equal_blocks,
    even_bounds,
    given_bounds,
    merge_positions,
)
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of

CHAIN = Chain(
    forward_seconds=np.array([1.0, 2.0, 3.0, 4.0, 5.0]),
    backward_seconds=np.array([2.0, 4.0, 6.0, 8.0, 10.0]),
    parameter_bytes=np.array([1.0, 1.0, 1.0, 1.0, 1.0]),
    saved_bytes=np.array([10.0, 20.0, 30.0, 40.0, 50.0]),
    crossing_bytes=np.array([7.0, 8.0, 9.0, 6.0]),
    names=("embedding", "layers.0.attention", "layers.0.mlp", "layers.1.attention", "head"),
)


def test_blocks_start_where_the_module_path_changes_its_number() -> None:
    assert block_starts(CHAIN) == (0, 1, 3, 4)


def test_merged_positions_add_up_and_keep_what_crosses_between_them() -> None:
    blocks = merge_positions(CHAIN, block_starts(CHAIN))
    assert blocks.forward_seconds.tolist() == [1, 5, 4, 5]
    assert blocks.backward_seconds.tolist() == [2, 10, 8, 10]
    assert blocks.saved_bytes.tolist() == [10, 50, 40, 50]
    assert blocks.crossing_bytes.tolist() == [7, 9, 6]


def test_no_block_is_on_two_stages() -> None:
    workload = workload_of(WorkloadRequest("gpt2", batch=4, seq_len=64, precision="fp16"))
    answer = predict(Scenario(workload, cluster("t4:4"), Parallelism(strategy="pp=4"), advice=False))
    assert isinstance(answer, Prediction)
    spans = [stage.split(" to ") for stage in answer.parallelism.stages]
    ends = [(span[0], span[-1]) for span in spans]
    assert all(before[1] != after[0] for before, after in itertools.pairwise(ends))


def stages_of(strategy: str, model: str = "gpt2") -> tuple[str, ...]:
    workload = workload_of(WorkloadRequest(model, batch=4, seq_len=64, precision="fp16"))
    answer = predict(Scenario(workload, cluster("t4:4"), Parallelism(strategy=strategy), advice=False))
    assert isinstance(answer, Prediction)
    return answer.parallelism.stages


UNITS = ("", "layers.0", "layers.1", "layers.2", "layers.3", "")
SIZES = np.array([9.0, 4.0, 1.0, 1.0, 1.0, 9.0])


def test_blocks_of_one_list_that_mostly_have_one_size_are_equal() -> None:
    assert equal_blocks(UNITS, SIZES) == (1, 2, 3, 4)
    assert equal_blocks(UNITS, np.arange(6.0)) == ()
    assert equal_blocks(("encoder.0", "encoder.1", "decoder.0"), np.ones(3)) == ()
    assert equal_blocks(("", ""), np.ones(2)) == ()


def test_stages_have_as_many_blocks_whatever_embedding_and_head_take() -> None:
    assert even_bounds((1, 2, 3, 4), 6, 2) == (0, 3, 6)
    assert even_bounds((1, 2, 3, 4), 6, 4) == (0, 2, 3, 4, 6)
    assert even_bounds((1, 2, 3, 4), 6, 3) is None
    assert even_bounds((), 6, 2) is None


def test_twelve_blocks_in_four_stages_are_three_each() -> None:
    stages = stages_of("pp=4")
    assert [stage.split(" to ")[0] for stage in stages[1:]] == ["blocks.3", "blocks.6", "blocks.9"]


def test_numbers_of_layers_may_be_given() -> None:
    assert given_bounds((1, 2, 3, 4), 6, (1, 3)) == (0, 2, 6)
    stages = stages_of("pp=4,layers=2+4+4+2")
    assert [stage.split(" to ")[0] for stage in stages[1:]] == ["blocks.2", "blocks.6", "blocks.10"]


def test_interleaved_parts_have_as_many_blocks() -> None:
    workload = workload_of(WorkloadRequest("gpt2", batch=8, seq_len=64, precision="fp16"))
    strategy = Parallelism(strategy="pp=2,chunks=3", micro_batches=4)
    answer = predict(Scenario(workload, cluster("t4:2"), strategy, advice=False))
    assert isinstance(answer, Prediction)
    assert len(answer.parallelism.stages) == 2


def test_layers_that_do_not_sum_up_are_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"layers=3\+3\+3\+4 are 13 layers, but the model has 12"):
        stages_of("pp=4,layers=3+3+3+4")
    with pytest.raises(InvalidRequest, match="gives 3 numbers for 4 stages; give 4"):
        layout_of("pp=4,layers=4+4+4", 4, 4)
    with pytest.raises(InvalidRequest, match="neither whole numbers"):
        layout_of("pp=4,layers=even", 4, 4)
    with pytest.raises(InvalidRequest, match="requires a pipeline"):
        layout_of("tp=4,layers=12", 4, 4)


def test_stages_may_be_balanced_by_time() -> None:
    """The head of GPT-2 on a short sequence takes as long as several blocks."""
    last = stages_of("pp=4,layers=balanced")[-1]
    first_block = last.split(" to ")[0].removeprefix("blocks.")
    assert first_block == "no block" or int(first_block) > 9  # the head may be a stage of its own
