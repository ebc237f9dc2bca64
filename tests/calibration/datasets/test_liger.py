"""Layers of Liger's benchmarks, traced: what is timed, and no more."""

from calibration.datasets.liger import LayerTime, graph_of

from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import operators


def test_a_layer_is_traced_with_a_gradient_that_is_there_already() -> None:
    """relu and square of 4 x 8 in FP32: each reads and writes 128 bytes; there is no loss."""
    traced = graph_of(LayerTime("relu_squared", "h100-sxm", "full", {"M": 4, "N": 8}, 1.0))
    assert traced is not None
    found = [op for op in operators(traced) if op.work.kind is not Kind.VIEW]
    forward = [(op.work.read_bytes, op.work.write_bytes) for op in found if op.phase is Phase.FORWARD]
    assert forward == [(128, 128), (128, 128)]
    assert not any(op.work.kind is Kind.REDUCTION for op in found)


def test_a_layer_that_is_not_described_is_none() -> None:
    assert graph_of(LayerTime("fused_moe", "h100-sxm", "full", {}, 1.0)) is None
