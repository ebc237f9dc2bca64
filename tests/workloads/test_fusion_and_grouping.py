"""Fusing conserves the model's work; grouping conserves its operators."""

import numpy as np
import pytest
from tests.support.small_models import MODELS, graph

from foretrain.errors import InvalidRequest
from foretrain.workloads.family import Axis, family
from foretrain.workloads.fusion import FUSED, fuse, fused, fusion, is_fused, unfused
from foretrain.workloads.graph import Graph, Nature
from foretrain.workloads.grouping import group, nodes_in_proportion
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.rules import operators


def matrix_flop(traced: Graph) -> float:
    return sum(op.work.flop for op in operators(traced) if op.work.kind in MATRIX_KINDS)


def traffic(traced: Graph) -> float:
    return sum(op.work.read_bytes + op.work.write_bytes for op in operators(traced))


@pytest.mark.parametrize("name", MODELS)
def test_fusing_keeps_the_products_and_lowers_the_traffic(name: str) -> None:
    eager = graph(name, batch=64, optimizer=None)
    compiled = fuse(eager)
    assert matrix_flop(compiled) == matrix_flop(eager)
    assert traffic(compiled) <= traffic(eager)
    assert len(compiled.calls) < len(eager.calls)
    assert any(call.name == FUSED for call in compiled.calls)


@pytest.mark.parametrize("name", MODELS)
def test_fused_memory_stays_consistent(name: str) -> None:
    compiled = fuse(graph(name))
    for index, call in enumerate(compiled.calls):
        for buffer in (*call.reads, *call.writes):
            assert compiled.buffers[buffer].born <= index
            assert compiled.buffers[buffer].dies >= index or compiled.buffers[buffer].dies == index


@pytest.mark.parametrize("name", MODELS)
def test_no_kernel_spans_a_break(name: str) -> None:
    eager = graph(name, optimizer=None)
    whole = fusion(eager)
    joined = [index for index in range(1, len(eager.calls)) if whole.place[index] == whole.place[index - 1]]
    apart = fusion(eager, joined[::2])
    for index in range(1, len(eager.calls)):
        if apart.place[index] == apart.place[index - 1]:
            assert index in joined[1::2]
    assert len(apart.graph.calls) >= len(whole.graph.calls) + len(joined[::2])
    assert matrix_flop(apart.graph) == matrix_flop(eager)
    assert traffic(whole.graph) <= traffic(apart.graph)


@pytest.mark.parametrize("name", MODELS)
def test_views_alone_are_no_kernel(name: str) -> None:
    compiled = fuse(graph(name, precision="bf16"))
    assert all(call.settings["fused"] for call in compiled.calls if call.name == FUSED)


@pytest.mark.parametrize("name", ["blocks", "conv"])  # saved masks and offsets have specs of their own
def test_every_size_of_a_family_is_fused_as_the_first(name: str) -> None:
    recorded = family([Axis("batch", 2, 4)], [graph(name, batch) for batch in (2, 4)])
    derived = recorded.at({"batch": 7})
    assert fused(derived) == fuse(derived)
    assert fused(derived) is fused(derived)
    assert fused(derived).calls is fused(recorded.graph).calls
    assert fused(derived).batch == 7
    assert unfused(fused(derived)) is derived
    assert unfused(derived) is derived
    assert is_fused(fused(derived))
    assert not is_fused(derived)


def test_grouping_puts_every_operator_in_one_node() -> None:
    traced = graph("blocks")
    grouped = group(traced, 12)
    operators_kept = sum(call.nature is not Nature.VIEW for call in traced.calls)
    assert grouped.features[:, 2].sum() == operators_kept == len(grouped.group_of)
    assert set(grouped.group_of) == set(range(12))
    assert grouped.adjacency.shape == (12, 12)
    assert np.all(np.diag(grouped.adjacency) == 0)
    assert np.all((grouped.features[:, 0] > 0) & (grouped.features[:, 0] <= 1))


def test_grouping_is_deterministic_for_a_seed() -> None:
    traced = graph("conv")
    assert np.array_equal(group(traced, 5, seed=1).group_of, group(traced, 5, seed=1).group_of)


def test_no_grouping_keeps_every_edge() -> None:
    traced = graph("mlp", optimizer=None)
    kept = sum(call.nature is not Nature.VIEW for call in traced.calls)
    assert group(traced, kept).features[:, 2].tolist() == [1.0] * kept


def test_more_nodes_than_operators_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot group"):
        group(graph("mlp"), 10_000)


def test_proportional_grouping_grows_with_the_logarithm() -> None:
    assert nodes_in_proportion([100, 100]) == 20
    assert nodes_in_proportion([1000]) == 30
    assert nodes_in_proportion([3]) == 3
    with pytest.raises(InvalidRequest):
        nodes_in_proportion([])
