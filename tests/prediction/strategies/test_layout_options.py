"""Options of a layout: when gradients are reduced, what is kept of gathered activations, what overlaps."""

from dataclasses import replace
from typing import Any

import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.memory.estimate import memory_options
from foretrain.prediction.memory.lifetimes import tensor_lifetimes
from foretrain.prediction.strategies.program import Axis, Exchange, MemoryOptions, Program
from foretrain.prediction.strategies.strategy import Layout, layout_of, replication
from foretrain.prediction.strategies.tensor import TensorParallel
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role, Spec
from foretrain.workloads.options import ResolvedOptions


def _graph(**options: Any) -> Graph:
    calls = (
        Call("aten.mm", Phase.FORWARD, "a", (), (0,), (0,), (), {}),
        Call("aten.mm", Phase.BACKWARD, "b", (), (0,), (0,), (1,), {}),
        Call("aten.mm", Phase.BACKWARD, "a", (), (0,), (0,), (2,), {}),
        Call("aten.add", Phase.OPTIMIZER, "", (), (), (0, 1, 2), (0,), {}),
    )
    buffers = (
        Buffer(0, -1, 4, Role.PARAMETER, "a"),
        Buffer(0, 0, 4, Role.GRADIENT, "b"),
        Buffer(0, 0, 4, Role.GRADIENT, "a"),
    )
    return Graph((Spec((1 << 20,), "float32"),), calls, buffers, (), 1, 1, 0, ResolvedOptions(**options))


def replicated(program: Program, layout: Layout) -> Program:
    return replication(layout).replicate(program, layout)


def test_gradients_are_reduced_as_they_become_ready_or_after_all() -> None:
    overlapped = replicated(Program(_graph()), layout_of("tp=1,dp=4", 4, 4))
    later = replicated(Program(_graph()), layout_of("tp=1,dp=4,overlap=no", 4, 4))
    assert [exchange.after for exchange in overlapped.exchanges] == [1, 2]
    assert [exchange.after for exchange in later.exchanges] == [2, 2]
    assert [exchange.bytes for exchange in later.exchanges] == [e.bytes for e in overlapped.exchanges]


def test_full_gradients_stay_and_need_no_buckets() -> None:
    plain = tensor_lifetimes(_graph(), MemoryOptions(data_parallel=4, keep_gradients=True), 0)
    kept = tensor_lifetimes(
        _graph(precision="bf16", weights="bf16", master_weights=True, gradients="fp32"),
        MemoryOptions(data_parallel=4, keep_gradients=True),
        0,
    )
    assert plain.gradients.bytes.sum() == 8 << 20
    assert len(kept.gradients) == 0
    assert kept.resident.bytes.sum() == (4 + 8) << 20
    assert plain.resident.bytes.sum() == (4 + 8) << 20  # the buckets


@pytest.mark.parametrize(("keeps", "kept"), [(False, 0), (True, 2 * 750)])
def test_what_layers_gather_may_be_kept_for_every_micro_batch_in_flight(keeps: bool, kept: int) -> None:
    gathers = [Exchange("gather", Verb.ALL_GATHER, 1000.0, Axis.TENSOR, after, after + 1) for after in (0, 1)]
    layout = Layout("", tensor=4, sequence_parallel=True, keeps_gathered=keeps)
    assert memory_options(Program(_graph(), tuple(gathers)), 2.0, layout).gathered_bytes == kept


def test_sp_keep_keeps_gathered_activations() -> None:
    assert layout_of("tp=4,sp=keep", 4, 4).keeps_gathered
    assert not layout_of("tp=4,sp", 4, 4).keeps_gathered


@pytest.mark.parametrize(
    ("text", "framework", "overlaps"),
    [
        ("tp=4,sp", "megatron", False),
        ("tp=4,sp", "nemo", True),
        ("tp=4,sp=no", "nemo", False),
        ("tp=4,tp-overlap", "megatron", True),
        ("tp=4,tp-overlap=no", "nemo", False),
    ],
)
def test_exchanges_run_beside_their_own_products(text: str, framework: str, overlaps: bool) -> None:
    calls = [
        Call("aten.mm", Phase.FORWARD, "layers.0.a", (), (0,), (0,), (), {}),
        Call("aten.add", Phase.FORWARD, "layers.0", (), (0,), (0,), (), {}),
        Call("aten.mm", Phase.FORWARD, "layers.1.a", (), (0,), (0,), (), {}),
        Call("aten.mm", Phase.FORWARD, "head", (), (0,), (0,), (), {}),
    ]
    exchanges = (
        Exchange("sum", Verb.REDUCE_SCATTER, 1.0, Axis.TENSOR, 0, 1),
        Exchange("gather", Verb.ALL_GATHER, 1.0, Axis.TENSOR, 1, 2),
        Exchange("gather", Verb.ALL_GATHER, 1.0, Axis.TENSOR, 2, 3),
    )
    graph = replace(_graph(framework=framework), calls=tuple(calls))
    beside = TensorParallel().overlap(Program(graph, exchanges), layout_of(text, 4, 4)).exchanges
    spans = [(each.after, each.before, each.by_copies) for each in beside]
    own = [(-1, 1, True), (1, 3, True)] if overlaps else [(0, 1, False), (1, 2, False)]
    assert spans == [*own, (2, 3, False)]  # the output layer is outside the blocks


def test_overlap_of_layers_needs_tensor_parallelism() -> None:
    with pytest.raises(InvalidRequest, match="tp-overlap requires tensor parallelism"):
        layout_of("tp=1,tp-overlap", 4, 4)
