"""Operators in columns: classes of kernels, and listings priced on many devices or several together."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from foretrain.facts.devices import device
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.operators.pricing import (
    KINDS,
    PHASES,
    Listing,
    bounds,
    concatenate,
    kernel_class,
    listing_of,
    operator_models,
    price,
    price_all,
)
from foretrain.workloads.graph import Graph
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_at, workload_of


def convolution(dims: Mapping[str, int], direction: Direction = Direction.FORWARD) -> Work:
    """A plain 3 x 3 convolution, but for what is given."""
    plain = {
        "batch": 1, "in_channels": 64, "out_channels": 64, "groups": 1, "transposed": 0, "channels_last": 0,
        "kernel_height": 3, "kernel_width": 3, "stride_height": 1, "stride_width": 1,
    }  # fmt: skip
    return Work(Kind.CONVOLUTION, direction, {**plain, **dims}, "float16", 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("dims", "name"),
    [
        ({}, "dense"),
        ({"kernel_height": 1, "kernel_width": 1}, "pointwise"),
        ({"in_channels": 3}, "first"),
        ({"kernel_height": 4, "kernel_width": 4, "stride_height": 4, "stride_width": 4}, "patch"),
        ({"groups": 64}, "depthwise"),
        ({"groups": 64, "kernel_height": 7, "kernel_width": 7}, "wide depthwise"),
        ({"groups": 4}, "narrowly grouped"),
        ({"groups": 2}, "widely grouped"),
    ],
)
def test_shapes_of_convolutions(dims: dict[str, int], name: str) -> None:
    """What decides which routine a library runs."""
    assert kernel_class(convolution(dims)) == f"{name} convolution, forward, channels-first"


def test_direction_and_layout_are_separate_classes() -> None:
    """The same shape runs other kernels backward, and in another layout."""
    gradient = convolution({"channels_last": 1}, Direction.WEIGHT_GRADIENT)
    assert kernel_class(gradient) == "dense convolution, weight gradient, channels-last"


def test_batch_norm_has_a_layout_and_layer_norm_has_none() -> None:
    """Batch norm goes over images; layer norm over rows."""
    over_batch = {"over_batch": 1, "channels_last": 1}
    batch = Work(Kind.NORMALISATION, Direction.BACKWARD, over_batch, "float16", 1.0, 1.0, 1.0)
    layer = Work(Kind.NORMALISATION, Direction.BACKWARD, {"over_batch": 0}, "float32", 1.0, 1.0, 1.0)
    assert kernel_class(batch) == "batch normalisation, backward, channels-last"
    assert kernel_class(layer) == "normalisation, backward"


def graphs() -> list[Graph]:
    """A small network at three batch sizes, in half precision."""
    workload = workload_of(WorkloadRequest("cifar-resnet20", precision="fp16"))
    return [graph_at(workload, batch) for batch in (4, 32, 256)]


def test_columns_belong_to_the_operators() -> None:
    """Every column says of each operator what the operator itself says."""
    graph = graphs()[0]
    listing = listing_of(graph)
    names, places = listing.classes
    assert listing.ops == operators(graph)
    for index, op in enumerate(listing.ops):
        assert listing.calls[index] == op.call
        assert listing.kernels[index] == op.work.kernels
        assert PHASES[listing.phases[index]] is op.phase
        assert KINDS[listing.kinds[index]] is op.work.kind
        assert places[index] == (names.index(kernel_class(op.work)) if op.work.kernels else -1)


def test_a_graph_is_listed_once() -> None:
    """Listing a graph again gives the same listing."""
    graph = graphs()[0]
    assert listing_of(graph) is listing_of(graph)


@pytest.mark.parametrize("device_id", ["k80", "h100-sxm", "mi300x"])
def test_graphs_priced_together_cost_what_each_costs_alone(device_id: str) -> None:
    """Pricing together is only quicker."""
    target = device(device_id)
    listings = [listing_of(graph) for graph in graphs()]
    models = operator_models(target)
    for listing, joint in zip(listings, price_all(listings, target, models), strict=True):
        alone = price(listing, target, models)
        assert joint.listing is listing
        np.testing.assert_allclose(joint.seconds, alone.seconds, rtol=1e-12)
        np.testing.assert_allclose(joint.moving, alone.moving, rtol=1e-12)
        assert joint.confidence == alone.confidence


def test_steps_priced_together_are_those_priced_alone() -> None:
    """Corrections of whole steps look at each step by itself, in company too."""
    target, model = device("rtx3090"), OperatorCostModel()
    for graph, joint in zip(graphs(), model.price_all(graphs(), target), strict=True):
        np.testing.assert_allclose(
            joint.priced.seconds, model.price(graph, target).priced.seconds, rtol=1e-12
        )


def test_where_listings_begin() -> None:
    """Bounds split what `together` joins."""
    listings = [listing_of(graph) for graph in graphs()]
    whole, ends = concatenate(tuple(listings)), bounds(listings)
    assert ends[-1] == len(whole.ops)
    assert whole.ops[ends[1] : ends[2]] == listings[1].ops
    assert bounds([Listing(())]) == [0, 0]
