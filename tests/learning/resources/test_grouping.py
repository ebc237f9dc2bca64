"""Grouping conserves the operators of a graph."""

import numpy as np
import pytest
from tests.support.small_models import graph

from foretrain.errors import InvalidRequest
from foretrain.learning.resources.inputs import group, nodes_in_proportion
from foretrain.workloads.graph import Nature


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
