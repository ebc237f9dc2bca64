"""The family of models that sizes are chosen from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrain.errors import InvalidRequest
from foretrain.facts.sheets import sources
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.recorded.library import find_recording
from foretrain.workloads.summary import summarise
from foretrain.workloads.transformer_shapes import ShapedModel, nearest_shape, transformer_shapes
from foretrain.workloads.workload import graph_of, workload_of

PUBLISHED = {  # parameters in millions, of table A9 of Hoffmann et al.
    (8, 512): 44, (12, 768): 117, (20, 1024): 306, (24, 1280): 552, (22, 2048): 1266, (28, 2304): 2007,
    (36, 3072): 4516, (40, 3584): 6796, (42, 4096): 9293, (47, 5120): 16183,
}  # fmt: skip


def test_shapes_have_the_parameters_that_were_published() -> None:
    # Their blocks have 13 width² weights (relative positions take one), ours 12 and what rounding adds.
    shapes = {(each.layers, each.width): each for each in transformer_shapes()}
    for key, millions in PUBLISHED.items():
        shape = shapes[key]
        theirs = 13 * shape.width**2 * shape.layers + 32_000 * shape.width
        assert theirs == pytest.approx(millions * 1e6, rel=0.01)
        assert shape.parameters_with_embedding == pytest.approx(theirs, rel=0.1)


def test_shapes_grow_and_have_sources() -> None:
    shapes = transformer_shapes()
    counts = [each.parameters for each in shapes]
    assert counts == sorted(counts) and len(counts) > 40
    assert counts[0] < 100e6 and counts[-1] > 100e9
    for each in shapes:
        assert each.source in sources()
        assert each.width % each.heads == 0
        assert each.feed_forward % 256 == 0


def test_parameters_by_hand_are_those_of_the_graph() -> None:
    shape = transformer_shapes(seq_len=256)[0]
    assert shape.parameters == 8 * (4 * 512**2 + 3 * 512 * 1536 + 2 * 512) + 512 + 2 * 32_000 * 512
    step = summarise(graph_of(workload_of(WorkloadRequest(model="", batch=2), ShapedModel(shape))))
    assert step.parameters == shape.parameters


def test_transformers_builds_as_many_parameters(tmp_path: Path) -> None:
    shape = transformer_shapes(vocabulary=1000)[0]
    file = tmp_path / "config.json"
    file.write_text(json.dumps(shape.config))
    workload = workload_of(WorkloadRequest(model=f"hf:{file}", batch=2, seq_len=64))
    assert summarise(graph_of(workload)).parameters == shape.parameters


def test_recordings_cover_the_family() -> None:
    for place in (0, 20, -1):
        shape = transformer_shapes()[place]
        for training in (
            WorkloadRequest(model="", batch=2, precision="bf16"),
            WorkloadRequest(model="", batch=2, master_weights=True),
            WorkloadRequest(model="", batch=1, master_weights=True, checkpoint_activations=True),
        ):
            workload = workload_of(training, ShapedModel(shape))
            of_model = workload.source.shape(workload.sizes)
            assert of_model is not None
            assert find_recording(of_model, workload.options, None) is not None


def test_the_nearest_shape_is_nearest_by_ratio() -> None:
    shapes = transformer_shapes()
    assert shapes[nearest_shape(shapes, 7e9)].name == "llama-6.47B"
    assert nearest_shape(shapes, 1) == 0
    assert nearest_shape(shapes, 1e15) == len(shapes) - 1
    with pytest.raises(InvalidRequest, match="`params` must be at least 1, got 0"):
        nearest_shape(shapes, 0)
