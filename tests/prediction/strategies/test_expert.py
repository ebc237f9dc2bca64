"""Expert parallelism: fewer experts, as many tokens, and all-to-alls around them."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from tests.support.divided_graphs import check_parameters, check_shapes, graph, matrix_flop

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import device
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.memory.estimate import estimate_memory
from foretrain.prediction.strategies.expert import (
    expert_parallel,
    expert_parameters,
    feasible_expert_degrees,
)
from foretrain.prediction.strategies.program import Axis, Program
from foretrain.prediction.strategies.tensor import tensor_parallel
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import operators

SWITCH = "switch-base-8"
SPARSE_LAYERS = 12
MIXTRAL = {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 64,
}


@cache
def program(degree: int, **options: object) -> Program:
    return expert_parallel(Program(graph(SWITCH, **options)), degree)


def elements_of_experts(of: Graph) -> int:
    names = expert_parameters(of)
    assert names == {b.name for b in of.buffers if b.role is Role.PARAMETER and "experts" in b.name}
    return sum(
        of.specs[buffer.spec].elements
        for buffer in of.buffers
        if buffer.role is Role.PARAMETER and buffer.name in names
    )


def test_a_device_has_a_part_of_the_experts_and_as_much_work() -> None:
    whole, divided = graph(SWITCH), program(4).graph
    assert matrix_flop(divided) == pytest.approx(matrix_flop(whole))
    assert elements_of_experts(divided) * 4 == elements_of_experts(whole)
    others = whole.parameters - elements_of_experts(whole)
    assert divided.parameters - elements_of_experts(divided) == others
    assert divided.trainable_parameters == divided.parameters
    check_shapes(divided)
    check_parameters(divided)


def test_an_expert_gets_the_tokens_of_all_devices() -> None:
    """64 tokens of each of two sequences, from four devices."""
    layers = [
        op.work.dims
        for op in operators(program(4).graph)
        if ".experts." in op.module and op.work.kind is Kind.LINEAR and op.phase is Phase.FORWARD
    ]
    assert {dims["tokens"] for dims in layers} == {2 * 64 * 4}
    assert len(layers) == SPARSE_LAYERS * 2 * 2  # two experts left, two products each


def test_tokens_travel_there_and_back_twice() -> None:
    """Capacity 64 for each of 8 experts and 2 sequences, 768 wide in FP32: 3 MiB each way."""
    divided = program(4)
    counted = Counter(
        (e.name, e.bytes, divided.graph.calls[e.before].phase)
        for e in divided.exchanges
        if e.verb is Verb.ALL_TO_ALL and e.axis is Axis.EXPERT
    )
    size = 8 * 64 * 2 * 768 * 4.0
    names = ("tokens to experts", "results from experts")
    assert counted == {
        (name, size, phase): SPARSE_LAYERS for name in names for phase in (Phase.FORWARD, Phase.BACKWARD)
    }


def test_recomputation_sends_again() -> None:
    divided = program(2, checkpoint_activations=True, precision="bf16")
    assert len(divided.exchanges) == SPARSE_LAYERS * 2 * 3
    assert {e.bytes for e in divided.exchanges} == {8 * 64 * 2 * 768 * 2.0}


def test_lives_of_buffers_stay_in_order() -> None:
    divided = program(4).graph
    for buffer in divided.buffers:
        assert -1 <= buffer.born <= buffer.dies <= len(divided.calls)
    for index, call in enumerate(divided.calls):
        assert all(divided.buffers[b].born <= index for b in call.reads)


def test_memory_falls() -> None:
    on = device("h100-sxm")
    assert estimate_memory(program(4).graph, on).bytes < 0.6 * estimate_memory(graph(SWITCH), on).bytes


def test_with_tensor_parallelism_sums_within_experts_grow() -> None:
    first = tensor_parallel(Program(graph(SWITCH)), 2)
    both = expert_parallel(first, 4)
    assert matrix_flop(both.graph) == pytest.approx(matrix_flop(first.graph))
    inside = [
        e.bytes
        for e in both.exchanges
        if e.axis is Axis.TENSOR and ".experts." in both.graph.calls[e.after].module
    ]
    assert set(inside) == {4 * 2 * 64 * 768 * 4}
    assert all(-1 <= e.after < e.before <= len(both.graph.calls) for e in both.exchanges)
    check_shapes(both.graph)


def test_stacked_experts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    whole = graph(f"hf:{tmp_path}", seq_len=16, precision="bf16")
    divided = expert_parallel(Program(whole), 2)
    assert matrix_flop(divided.graph) == pytest.approx(matrix_flop(whole))
    assert elements_of_experts(divided.graph) * 2 == elements_of_experts(whole)
    check_parameters(divided.graph)
    rows = 2 * 16 * 2
    assert Counter((e.verb, e.bytes) for e in divided.exchanges) == {(Verb.ALL_TO_ALL, rows * 64 * 2): 2 * 4}
    groups = {op.work.dims["groups"] for op in operators(divided.graph) if op.name == "aten._grouped_mm"}
    assert groups == {2}


def test_stacked_experts_with_tensor_parallelism(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MIXTRAL))
    whole = graph(f"hf:{tmp_path}", seq_len=16, precision="bf16")
    for sequence_parallel in (False, True):
        first = tensor_parallel(Program(whole), 2, sequence_parallel)
        assert matrix_flop(whole) == pytest.approx(2 * matrix_flop(first.graph), rel=0.01)  # but the routers
        assert elements_of_experts(first.graph) * 2 == elements_of_experts(whole)
        check_shapes(first.graph)
        check_parameters(first.graph)
    both = expert_parallel(tensor_parallel(Program(whole), 2), 4)
    assert elements_of_experts(both.graph) * 8 == elements_of_experts(whole)


def test_models_that_cannot_be_divided_are_refused_with_the_reason() -> None:
    whole = Program(graph(SWITCH))
    assert expert_parallel(whole, 1) is whole
    assert feasible_expert_degrees(graph(SWITCH), 64) == (1, 2, 4, 8)
    assert feasible_expert_degrees(graph("gpt2"), 64) == (1,)
    with pytest.raises(InvalidRequest, match=r"8 experts.*nearest degrees that do: 2 and 4"):
        program(3)
    with pytest.raises(InvalidRequest, match="none are recognised in this model"):
        expert_parallel(Program(graph("gpt2")), 2)
