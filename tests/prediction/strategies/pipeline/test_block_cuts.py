"""Pipelines are cut between blocks, as frameworks place them."""

from __future__ import annotations

import itertools

import numpy as np

from foretrain.facts.clusters import cluster
from foretrain.prediction.answer import Prediction
from foretrain.prediction.predict import predict
from foretrain.prediction.scenario import Parallelism, Scenario
from foretrain.prediction.strategies.pipeline.cuts import Chain, block_starts, merged
from foretrain.workloads.requests import WorkloadRequest, workload_of

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
    blocks = merged(CHAIN, block_starts(CHAIN))
    assert blocks.forward_seconds.tolist() == [1, 5, 4, 5]
    assert blocks.backward_seconds.tolist() == [2, 10, 8, 10]
    assert blocks.saved_bytes.tolist() == [10, 50, 40, 50]
    assert blocks.crossing_bytes.tolist() == [7, 9, 6]


def test_no_block_is_on_two_stages() -> None:
    workload = workload_of(WorkloadRequest("gpt2", batch=4, seq_len=64, precision="bf16"))
    answer = predict(Scenario(workload, cluster("t4:4"), Parallelism("pp=4"), advice=False))
    assert isinstance(answer, Prediction)
    spans = [stage.split(" to ") for stage in answer.parallelism.stages]
    ends = [(span[0], span[-1]) for span in spans]
    assert all(before[1] != after[0] for before, after in itertools.pairwise(ends))
