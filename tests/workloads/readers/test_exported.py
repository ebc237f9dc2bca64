"""Programs saved by torch.export."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.workloads.ops import Kind
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.zoo import BuildOptions, build

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.export warns about itself


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zoo's MNIST network, exported with a free batch."""
    example = build("mnist-cnn", BuildOptions(batch=4))
    free = {0: torch.export.Dim("batch", min=2)}
    program = torch.export.export(example.module, example.inputs, dynamic_shapes=(free,), strict=False)
    path = tmp_path_factory.mktemp("exported") / "mnist.pt2"
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer exported for two samples alone, one input by name."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.layer(x) + shift
            return result

    program = torch.export.export(Net(), (torch.rand(2, 4),), {"shift": torch.rand(2, 3)})
    path = tmp_path_factory.mktemp("exported") / "fixed.pt2"
    torch.export.save(program, path)
    return path


def test_the_work_of_an_exported_network_is_that_of_the_network(mnist: Path) -> None:
    source = read_model(str(mnist))
    assert (source.kind, source.runs_user_code) == ("exported program", True)
    options = ResolvedOptions(precision="bf16")
    read = trace(source.example(BuildOptions(batch=8)), options)
    own = trace(read_model("mnist-cnn").example(BuildOptions(batch=8)), options)
    assert (read.parameters, read.samples) == (own.parameters, 8)
    assert unknown_names(operators(read)) == ()
    kinds = (Kind.CONVOLUTION, Kind.LINEAR)
    matrices = [
        sorted((op.work.flop, op.work.dtype) for op in operators(graph) if op.work.kind in kinds)
        for graph in (read, own)
    ]
    assert matrices[0] == matrices[1]
    assert {dtype for _, dtype in matrices[0]} == {"bfloat16"}


def test_the_batch_it_was_exported_with_is_the_default(mnist: Path) -> None:
    assert read_model(str(mnist)).example(BuildOptions()).samples == 4


def test_inputs_by_name_and_a_fixed_batch(fixed: Path) -> None:
    source = read_model(str(fixed))
    assert trace(source.example(BuildOptions(batch=2)), ResolvedOptions()).parameters == 15
    with pytest.raises(InvalidRequest, match="for a batch of 2 alone"):
        source.example(BuildOptions(batch=3))
    with pytest.raises(InvalidRequest, match="has no image_size"):
        source.example(BuildOptions(image_size=3))


def test_the_fingerprint_is_that_of_the_bytes(mnist: Path, fixed: Path) -> None:
    assert read_model(str(mnist)).fingerprint() != read_model(str(fixed)).fingerprint()


def test_a_truncated_file_is_refused(fixed: Path, tmp_path: Path) -> None:
    content = fixed.read_bytes()
    (tmp_path / "cut.pt2").write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidData, match="truncated"):
        read_model(str(tmp_path / "cut.pt2"))


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.rand(2)}, tmp_path / "weights.pt2")
    with pytest.raises(InvalidData, match=r"torch\.export\.save"):
        read_model(str(tmp_path / "weights.pt2")).example(BuildOptions())
