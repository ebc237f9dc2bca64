"""Fusing conserves the model's work; a step as it runs follows from the recorded one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support.small_models import MODELS, graph

from foretrain.workloads.example import Example
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.family import RecordedAxis, derive_family
from foretrain.workloads.fused_kernels import FUSED
from foretrain.workloads.fusion import fuse, plan_fusion, runs_channels_last
from foretrain.workloads.graph import Graph, Nature, once_per_graph
from foretrain.workloads.ops import MATRIX_KINDS
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.step import trace


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
    whole = plan_fusion(eager)
    joined = [index for index in range(1, len(eager.calls)) if whole.place[index] == whole.place[index - 1]]
    apart = plan_fusion(eager, joined[::2])
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
    recorded = derive_family(
        [RecordedAxis("batch", 2, 4)], [graph(name, batch, compile=True) for batch in (2, 4)]
    )
    first, derived = (recorded.executed_at({"batch": batch}) for batch in (2, 7))
    assert derived.source == recorded.at({"batch": 7})
    assert derived.graph == fuse(derived.source)
    assert derived.graph is derived.graph
    assert derived.graph.calls is first.graph.calls
    assert derived.graph.batch == 7


def test_a_step_that_fuses_nothing_runs_as_it_was_recorded() -> None:
    step = ExecutedGraph(graph("blocks"))
    assert step.graph is step.source
    compiled = step.with_options(compile=True)
    assert len(compiled.graph.calls) < len(compiled.source.calls) == len(step.source.calls)


def test_a_graph_on_other_sizes_keeps_its_structure_and_one_of_other_calls_does_not() -> None:
    eager = graph("blocks")
    resized = replace(eager, specs=tuple(spec._replace(dtype="float64") for spec in eager.specs))
    assert resized.structure is eager.structure and resized.producers is eager.producers
    shorter = replace(eager, calls=eager.calls[:5])
    assert len(shorter.producers) == len(shorter.saved) == len(shorter.representatives) == 5


def test_what_is_derived_once_per_graph_is_derived_anew_for_a_changed_one() -> None:
    asked: list[int] = []

    @once_per_graph
    def count(of: Graph) -> int:
        asked.append(of.batch)
        return len(of.calls)

    eager = graph("blocks")
    assert count(eager) == count(eager) == len(eager.calls)
    assert count(replace(eager, calls=eager.calls[:5])) == 5
    assert len(asked) == 2


def compile_forward(forward: Callable[..., Any], **layers: torch.nn.Module) -> Graph:
    """The fused forward pass of layers on a batch of 4 samples of 8 features, or 4 images of 8 x 16 x 16."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                self.add_module(name, layer)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = forward(self, x)
            return result

    is_image = any(isinstance(layer, torch.nn.Conv2d) for layer in layers.values())
    inputs = torch.empty((4, 8, 16, 16) if is_image else (4, 8))
    example = Example(Model(), (inputs,), loss=None, samples=4)
    return fuse(trace(example, ResolvedOptions(optimizer=None, forward_only=True)))


def kernels_of(compiled: Graph) -> list[list[str]]:
    return [call.settings["fused"] for call in compiled.calls if call.name == FUSED]


def test_a_kernel_waits_for_its_reader_behind_a_product() -> None:
    compiled = compile_forward(
        lambda m, x: (torch.sigmoid(m.one(x)) + m.two(x)).sum(),
        one=torch.nn.Linear(8, 8),
        two=torch.nn.Linear(8, 8),
    )
    assert kernels_of(compiled) == [["aten.sigmoid", "aten.add", "aten.sum"]]


def test_a_kernel_whose_result_a_product_reads_does_not_wait() -> None:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(m.one(x))
        total: torch.Tensor = (gate + m.two(gate)).sum()
        return total

    compiled = compile_forward(forward, one=torch.nn.Linear(8, 8), two=torch.nn.Linear(8, 8))
    names = [call.name for call in compiled.calls if call.nature is not Nature.VIEW]
    assert names == ["aten.addmm", "aten.sigmoid", "aten.addmm", FUSED]
    assert kernels_of(compiled) == [["aten.add", "aten.sum"]]


def test_pooling_reads_what_was_stored_and_is_fused_with_its_readers() -> None:
    compiled = compile_forward(
        lambda m, x: torch.tanh(torch.nn.functional.avg_pool2d(torch.relu(m.one(x)) * 2, 2)).sum(),
        one=torch.nn.Conv2d(8, 8, 3),
    )
    assert kernels_of(compiled) == [
        ["aten.relu", "aten.mul"],
        ["aten.avg_pool2d", "aten.tanh", "aten.sum"],
    ]


def test_a_kernel_reads_only_the_part_of_a_tensor_that_it_uses() -> None:
    compiled = compile_forward(
        lambda m, x: torch.tanh(torch.sigmoid(m.one(x)[:, :2])).sum(), one=torch.nn.Linear(8, 8)
    )
    (work,) = [op.work for op in operators(compiled) if op.name == FUSED]
    assert work.read_bytes == 4 * 2 * 4  # 4 samples, 2 of 8 features


def test_a_batch_norm_in_training_reads_its_input_twice() -> None:
    compiled = compile_forward(
        lambda m, x: torch.relu(m.norm(m.one(x))),
        one=torch.nn.Conv2d(8, 8, 3, bias=False),
        norm=torch.nn.BatchNorm2d(8, affine=False, track_running_stats=False),
    )
    (work,) = [op.work for op in operators(compiled) if op.name == FUSED]
    assert work.read_bytes == 2 * 4 * 8 * 14 * 14 * 4


@pytest.mark.parametrize(
    ("channels", "groups", "in_training", "expected"),
    [(128, 1, True, True), (64, 1, True, False), (64, 1, False, True), (128, 4, True, False),
     (128, 4, False, False), (128, 128, True, True)],
)  # fmt: skip
def test_channels_last_by_the_heuristics_of_the_compiler(
    channels: int, groups: int, in_training: bool, expected: bool
) -> None:
    layer = torch.nn.Conv2d(channels, channels, 3, groups=groups)
    example = Example(layer, (torch.empty(2, channels, 8, 8),), loss=torch.sum, samples=2)
    traced = trace(example, ResolvedOptions(optimizer=None, forward_only=not in_training))
    assert runs_channels_last(traced) is expected
    laid_out = [call.settings.get("channels_last") for call in fuse(traced).calls if "convol" in call.name]
    assert laid_out == [expected or None] * len(laid_out)


def test_a_language_model_has_no_layout_to_choose() -> None:
    assert not runs_channels_last(graph("mlp"))
