"""Context parallelism: tokens divided, keys and values whole, and what passes around the ring."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from tests.support.divided_graphs import check_parameters, check_shapes, graph, matrix_flop, role_bytes

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.strategies.context import context_parallel, feasible_context_degrees
from foretrain.prediction.strategies.program import Axis, Program
from foretrain.prediction.strategies.tensor import tensor_parallel
from foretrain.workloads.graph import Phase, Role
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import operators


@cache
def program(model: str, degree: int, **options: object) -> Program:
    return context_parallel(Program(graph(model, **options)), degree)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt2", {}),
        ("gpt2", {"precision": "bf16", "checkpoint_activations": True}),
        ("gpt2", {"compile": True}),
        ("bert-base", {}),
        ("t5-small", {}),
        ("llama3.2-1b", {"seq_len": 512, "precision": "bf16"}),
    ],
)
def test_work_is_conserved_and_parameters_stay_whole(model: str, options: dict[str, object]) -> None:
    whole, divided = graph(model, **options), program(model, 4, **options).graph
    assert 4 * matrix_flop(divided) == pytest.approx(matrix_flop(whole))
    assert divided.parameters == whole.parameters
    assert role_bytes(divided, Role.ACTIVATION) < 0.35 * role_bytes(whole, Role.ACTIVATION)
    check_shapes(divided)
    check_parameters(divided)


def test_only_keys_and_values_travel() -> None:
    """GPT-2, two sequences of 1,024 tokens: K and V are 2 x 2 x 1024 x 768 x 4 bytes a layer, a quarter each
    time; backward their gradients too."""
    divided = program("gpt2", 4)
    share = 2 * 2 * 1024 * 768 * 4 / 4
    assert {(e.verb, e.axis) for e in divided.exchanges} == {(Verb.SEND, Axis.CONTEXT)}
    forward = [e for e in divided.exchanges if divided.graph.calls[e.before].phase is Phase.FORWARD]
    assert [e.bytes for e in forward] == [share] * (12 * 3)
    backward = divided.exchanges[len(forward) :]
    assert [e.bytes for e in backward] == [2 * share] * (12 * 3)


def test_a_device_meets_all_keys_with_its_own_queries() -> None:
    attention = [op.work for op in operators(program("gpt2", 4).graph) if op.work.kind is Kind.ATTENTION]
    assert {(work.dims["queries"], work.dims["keys"]) for work in attention} == {(256, 1024)}


def test_keys_arrive_while_attention_works() -> None:
    divided = program("gpt2", 4)
    for exchange in divided.exchanges:
        overlapped = divided.graph.calls[exchange.after + 1 : exchange.before]
        assert any(call.name.startswith("foretrain.attention") for call in overlapped)


def test_with_tensor_parallelism_heads_and_tokens_are_divided() -> None:
    first = tensor_parallel(Program(graph("gpt2")), 4)
    both = context_parallel(first, 2)
    assert both.degrees == {Axis.TENSOR: 4, Axis.CONTEXT: 2}
    assert 2 * matrix_flop(both.graph) == pytest.approx(matrix_flop(first.graph))
    sums = [e.bytes for e in both.exchanges if e.axis is Axis.TENSOR]
    assert sums == [e.bytes / 2 for e in first.exchanges]
    rings = {e.bytes for e in both.exchanges if e.axis is Axis.CONTEXT}
    assert min(rings) == 2 * 2 * 1024 * 768 * 4 / 4 / 2
    check_shapes(both.graph)


def test_weights_that_lie_with_inputs_first(tmp_path: Path) -> None:
    """Hugging Face's GPT-2 multiplies by weights that are not transposed, and looks into its inputs whole."""
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 1000,
        "n_embd": 256,
        "n_layer": 2,
        "n_head": 8,
        "n_positions": 256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    whole = Program(graph(f"hf:{tmp_path}", seq_len=64))
    by_heads, by_tokens = tensor_parallel(whole, 4), context_parallel(whole, 4)
    for divided in (by_heads, by_tokens):
        assert 4 * matrix_flop(divided.graph) == pytest.approx(matrix_flop(whole.graph))
        check_shapes(divided.graph)
        check_parameters(divided.graph)
    assert {e.verb for e in by_tokens.exchanges} == {Verb.SEND}


def test_degree_one_changes_nothing() -> None:
    whole = Program(graph("gpt2"))
    assert context_parallel(whole, 1) is whole


def test_models_that_cannot_be_divided_are_refused_with_the_reason() -> None:
    assert feasible_context_degrees(graph("gpt2"), 8) == (1, 2, 4, 8)
    with pytest.raises(InvalidRequest, match=r"512 pairs of tokens.*nearest degrees that do: 2 and 4"):
        program("gpt2", 3)
    with pytest.raises(InvalidRequest, match="sdpa or flash"):
        program("gpt2", 2, attention="eager")
    with pytest.raises(InvalidRequest, match="no input of this model"):
        program("vit-b-16", 2)
