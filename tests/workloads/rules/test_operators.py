"""Operators derived from calls, against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from tests.support.small_models import MODELS, graph

from foretrain.facts.frameworks import frameworks
from foretrain.prediction.operators.host import in_library
from foretrain.prediction.operators.pricing import listing_of
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role, Spec, with_options
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.options import ResolvedOptions, WorkloadRequest
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import graph_of, workload_of


def works(traced: Graph, kind: Kind) -> list[Work]:
    return [op.work for op in operators(traced) if op.work.kind is kind]


def test_linear_layers_forward_and_backward() -> None:
    found = works(graph("mlp", optimizer=None), Kind.LINEAR)
    named = [(w.direction, w.dims["tokens"], w.dims["in"], w.dims["out"], w.flop) for w in found]
    assert named == [
        (Direction.FORWARD, 4, 8, 16, 2 * 4 * 8 * 16),
        (Direction.FORWARD, 4, 16, 4, 2 * 4 * 16 * 4),
        (Direction.INPUT_GRADIENT, 4, 16, 4, 2 * 4 * 16 * 4),
        (Direction.WEIGHT_GRADIENT, 4, 16, 4, 2 * 4 * 16 * 4),
        (Direction.WEIGHT_GRADIENT, 4, 8, 16, 2 * 4 * 8 * 16),
    ]


def test_a_linear_layer_moves_its_operands_once() -> None:
    first = works(graph("mlp", optimizer=None), Kind.LINEAR)[0]
    assert first.read_bytes == 4 * (16 + 4 * 8 + 8 * 16)  # bias, inputs, weight
    assert first.write_bytes == 4 * (4 * 16)


def test_convolution_and_its_weight_gradient() -> None:
    found = works(graph("conv", optimizer=None), Kind.CONVOLUTION)
    flop = 2 * 4 * (8 * 8) * (3 * 8) * 9
    assert [(w.direction, w.flop) for w in found] == [
        (Direction.FORWARD, flop),
        (Direction.WEIGHT_GRADIENT, flop),  # the first layer has no input gradient
    ]
    assert found[0].dims["kernel_height"] == 3
    assert found[0].dims["in_channels"] == 3


def test_a_loss_picks_one_probability_of_each_row() -> None:
    """Two images of ten classes: a target of 8 bytes and a sector of 32 bytes each; the gradient is whole."""
    forward, backward = works(graph_of(workload_of(WorkloadRequest("cifar-resnet20", batch=2))), Kind.LOSS)
    assert forward.read_bytes == 2 * (8 + 32)
    assert (backward.read_bytes, backward.write_bytes) == (2 * 8, 2 * 10 * 4 + 2 * 32)


def test_the_layout_of_images_is_recorded() -> None:
    plain, last = (works(graph("conv", channels_last=flag), Kind.CONVOLUTION) for flag in (False, True))
    assert {work.dims["channels_last"] for work in plain} == {0}
    assert {work.dims["channels_last"] for work in last} == {1}


def test_batch_norm_with_statistics_it_has_only_scales_and_shifts() -> None:
    request = WorkloadRequest("cifar-resnet20", batch=2, forward_only=True)
    frozen = graph_of(workload_of(request))
    assert not works(frozen, Kind.NORMALISATION)
    trained = graph_of(workload_of(WorkloadRequest("cifar-resnet20", batch=2)))
    assert works(trained, Kind.NORMALISATION)


def test_attention_by_hand() -> None:
    forward, *_, backward = works(graph("blocks", optimizer=None), Kind.ATTENTION)
    scores = 4 * 2 * 5 * 5  # batch, heads, queries, keys
    assert forward.flop == 2 * scores * (8 + 8)
    assert backward.flop == 5 * scores * (8 + 8)


def test_an_lstm_by_hand() -> None:
    forward, backward = works(graph("lstm", optimizer=None), Kind.RNN)
    # 7 steps, batch 4, 4 gates of 10: first layer from 6 + 10 columns, second from 10 + 10
    assert forward.flop == 2 * 7 * 4 * 4 * 10 * ((6 + 10) + (10 + 10))
    assert backward.flop == 2 * forward.flop


def test_views_cost_nothing() -> None:
    for work in works(graph("blocks"), Kind.VIEW):
        assert (work.flop, work.read_bytes, work.write_bytes, work.kernels) == (0, 0, 0, 0)


def test_a_copy_into_a_tensor_does_not_read_what_it_overwrites() -> None:
    specs = (Spec((10,), "float32"), Spec((10,), "float16"))
    buffers = tuple(Buffer(index, -1, 1, Role.ACTIVATION, "") for index in range(2))
    call = Call("aten.copy_", Phase.FORWARD, "", (0, 1), (0,), (0, 1), (0,), {})
    (op,) = operators(Graph(specs, (call,), buffers, (), 1, 1, 0))
    assert (op.work.read_bytes, op.work.write_bytes) == (20, 40)


def test_adam_reads_and_writes_its_state() -> None:
    update = [op.work for op in operators(graph("mlp", optimizer="adamw")) if op.phase is Phase.OPTIMIZER]
    assert {work.kind for work in update if work.kernels} == {Kind.OPTIMIZER}
    moved = sum(work.read_bytes + work.write_bytes for work in update)
    parameters = 4 * 212
    assert 10 * parameters <= moved <= 25 * parameters  # eight passes over two to four lists


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_operator_has_a_rule(name: str, precision: str) -> None:
    assert unknown_names(operators(graph(name, precision=precision))) == ()


def test_tf32_changes_arithmetic_but_not_traffic() -> None:
    plain, fast = graph("mlp"), graph("mlp", precision="tf32")
    assert {w.dtype for w in works(fast, Kind.LINEAR)} == {"tf32"}
    assert [w.read_bytes for w in works(plain, Kind.LINEAR)] == [
        w.read_bytes for w in works(fast, Kind.LINEAR)
    ]
    assert {w.dtype for w in works(fast, Kind.OPTIMIZER)} == {"float32"}


@pytest.mark.parametrize("name", MODELS)
def test_work_grows_with_the_batch(name: str) -> None:
    small, large = operators(graph(name, 4)), operators(graph(name, 8))
    assert sum(op.work.flop for op in large) > sum(op.work.flop for op in small)
    assert all(a.work.flop <= b.work.flop for a, b in zip(small, large, strict=True))


def test_keras_moves_the_filter_of_each_dense_convolution_and_gradient() -> None:
    """Of the 3x3 convolution of 3 into 8 channels there are a forward pass and a weight gradient."""
    plain = graph("conv")
    in_keras = with_options(plain, framework="keras")
    more = [work for work in works(in_keras, Kind.COPY) if work not in works(plain, Kind.COPY)]
    passes = frameworks()["keras"].filter_passes
    filter_bytes = 8 * 3 * 3 * 3 * 4
    assert [(work.kind, work.direction) for work in more] == [
        (Kind.COPY, Direction.FORWARD),
        (Kind.COPY, Direction.WEIGHT_GRADIENT),
    ]
    assert all(work.read_bytes + work.write_bytes == pytest.approx(passes * filter_bytes) for work in more)


def test_a_compiled_convolution_has_its_bias_in_the_next_kernel() -> None:
    plain = graph("conv")
    compiled = with_options(plain, compile=True)
    assert [work.dims.get("bias") for work in works(plain, Kind.CONVOLUTION)] == [1, None]
    assert not any("bias" in work.dims for work in works(compiled, Kind.CONVOLUTION))


def test_a_thread_resamples_one_position_of_all_samples_and_channels_unless_compiled() -> None:
    class Doubled(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(images, scale_factor=2, mode="bilinear")

    example = Example(Doubled(), (torch.empty(4, 3, 7, 5, device="meta"),), loss=None, samples=4)
    traced = trace(example, ResolvedOptions(precision="fp32", optimizer=None, forward_only=True))
    (eager,) = works(traced, Kind.RESAMPLE)
    assert (eager.dims["loops"], eager.dims["positions"]) == (4 * 3, 14 * 10)
    (compiled,) = works(with_options(traced, compile=True), Kind.RESAMPLE)
    assert "loops" not in compiled.dims


def test_a_batch_norm_with_statistics_it_has_is_still_launched_by_a_library() -> None:
    frozen = graph_of(workload_of(WorkloadRequest("resnet18", batch=2, forward_only=True)))
    norms = [op.work for op in operators(frozen) if "batch_norm" in op.name]
    assert norms and all(work.kind is Kind.ELEMENTWISE and work.dims["library"] for work in norms)
    listing = listing_of(frozen)
    named = np.array(["batch_norm" in op.name for op in listing.ops])
    assert in_library(listing)[named].all()


def test_a_bag_of_embeddings_reads_a_row_for_each_id() -> None:
    """Three ids in each of 4 bags, rows of 8: 12 rows are read, 4 written; the gradient is as the table."""
    with torch.device("meta"):
        bag = torch.nn.EmbeddingBag(100, 8, mode="sum")
        ids = torch.randint(100, (4, 3))
    traced = trace(Example(bag, (ids,), torch.sum, samples=4), ResolvedOptions(optimizer=None))
    forward, backward = works(traced, Kind.EMBEDDING)
    assert (forward.read_bytes, forward.write_bytes) == (12 * 8 * 4 + 12 * 8, 4 * 8 * 4)
    assert (backward.read_bytes, backward.write_bytes) == (12 * 8 * 4 + 12 * 8, 100 * 8 * 4 + 12 * 8 * 4)
    assert forward.dims["tokens"] == backward.dims["tokens"] == 12
    assert unknown_names(operators(traced)) == ()
