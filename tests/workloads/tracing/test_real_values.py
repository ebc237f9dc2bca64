"""Steps that are run: shapes that follow from data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foretrain.errors import InvalidRequest
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions, WorkloadRequest
from foretrain.workloads.readers.python_file import live_module
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import trace_workload, workload_of
from foretrain.workloads.zoo import BuildOptions

POSITIVE = """
import torch

class Positive(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2, bias=False)
    def forward(self, x):
        chosen = x[x.sum(1) > 0]
        return self.linear(chosen).sum() * float(chosen.mean())

def model():
    return Positive(), torch.tensor([[1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, 0.0, 0.0]])
"""


def graph_of(file: Path, **request: object) -> Graph:
    return trace_workload(workload_of(WorkloadRequest(f"{file}:model", **request)))  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "positive.py"
    path.write_text(POSITIVE)
    return path


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_shapes_are_those_of_the_example_inputs(file: Path, precision: str) -> None:
    graph = graph_of(file, trace="real", precision=precision)
    rows = [graph.specs[call.inputs[0]].shape for call in graph.calls if call.name == "aten.mm"]
    assert rows[0] == (2, 3)  # two of the three rows are positive
    assert graph.notes == (
        "the step was run on the CPU: its shapes are those that the example inputs lead to",
    )


def test_another_batch_repeats_the_samples(file: Path) -> None:
    graph = graph_of(file, trace="real", batch=6)
    assert graph.samples == 6
    assert any(graph.specs[call.inputs[0]].shape == (4, 3) for call in graph.calls if call.name == "aten.mm")


def test_without_data_the_error_names_the_way_out(file: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"depends on the data.*`trace` real"):
        graph_of(file)


def test_models_without_data_cannot_be_run() -> None:
    with pytest.raises(InvalidRequest, match="comes without data"):
        workload_of(WorkloadRequest("resnet18", trace="real"))


def test_a_model_without_branches_has_the_same_calls_either_way() -> None:
    class Attending(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.recurrent = torch.nn.LSTM(8, 4, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            attended, _ = self.inner(x, x, x, need_weights=False)
            outputs: torch.Tensor = self.recurrent(torch.softmax(attended, -1))[0]
            return outputs.sum()

    source = live_module(Attending(), torch.rand(2, 4, 8))
    options = ResolvedOptions(precision="bf16")
    plain, real = (
        trace(source.example(BuildOptions(real=is_real)), options, with_values=is_real)
        for is_real in (False, True)
    )
    assert [call.name for call in plain.calls] == [call.name for call in real.calls]
    assert plain.specs == real.specs


def test_a_detection_model_of_torchvision() -> None:
    request = WorkloadRequest(
        "torchvision:ssdlite320_mobilenet_v3_large", batch=2, image_size=64, trace="real"
    )
    graph = trace_workload(workload_of(request))
    assert graph.samples == 2
    assert unknown_names(operators(graph)) == ()


def test_a_detection_model_without_data_says_how() -> None:
    with pytest.raises(InvalidRequest, match=r"values of their scores.*`trace` real"):
        trace_workload(workload_of(WorkloadRequest("torchvision:fasterrcnn_resnet50_fpn")))
