"""Modules that live in half precision, with FP32 copies of their weights in the optimizer."""

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

from foretrain.errors import InvalidRequest
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.step import trace
from foretrain.workloads.workload import Workload, trace_workload
from foretrain.workloads.zoo import BuildOptions

WEIGHTS = 3 * 4 + 5 * 3


def _example() -> Example:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3, bias=False), torch.nn.Linear(3, 5, bias=False))
    return Example(module, (torch.rand(2, 4),), lambda output: output.square().mean(), samples=2)


def _traced(**options: object) -> Graph:
    chosen = {
        "precision": "bf16",
        "optimizer": "adamw-fused",
        "weights": "bf16",
        "master_weights": True,
        **options,
    }
    return trace(_example(), ResolvedOptions(**chosen))  # type: ignore[arg-type]


def _bytes(graph: Graph) -> Counter[Role]:
    found: Counter[Role] = Counter()
    for buffer in graph.buffers:
        found[buffer.role] += graph.specs[buffer.spec].bytes
    return found


def test_weights_and_gradients_take_two_bytes_masters_and_moments_twelve() -> None:
    sizes = _bytes(_traced())
    steps = 2 * 4
    assert sizes[Role.PARAMETER] == 2 * WEIGHTS
    assert sizes[Role.GRADIENT] == 2 * WEIGHTS
    assert sizes[Role.OPTIMIZER_STATE] == 12 * WEIGHTS + steps
    assert sizes[Role.CAST_WEIGHT] == 0


def test_full_gradients_take_four_bytes_and_stay() -> None:
    graph = _traced(gradients="fp32")
    gradients = [buffer for buffer in graph.buffers if buffer.role is Role.GRADIENT]
    assert _bytes(graph)[Role.GRADIENT] == 4 * WEIGHTS
    assert {buffer.name for buffer in gradients} == {"0.weight", "1.weight"}
    assert all(buffer.dies == len(graph.calls) for buffer in gradients)
    assert sum(call.name == "aten.add_" for call in graph.calls if call.phase is Phase.BACKWARD) == 2


def test_a_parameter_without_a_gradient_keeps_its_fp32_gradient_as_it_is() -> None:
    """T5's bias of positions is a mask of fused attention, which has no gradient there."""
    options = ResolvedOptions(precision="bf16", weights="bf16", master_weights=True, gradients="fp32")
    source = read_model("t5-small").with_blocks(1)
    graph = trace_workload(Workload(source, BuildOptions(batch=2, seq_len=8), options))
    kept = {buffer.name for buffer in graph.buffers if buffer.role is Role.GRADIENT}
    assert {"encoder.relative.bias.weight", "tokens.weight"} <= kept
    added = [call for call in graph.calls if call.name == "aten.add_" and call.phase is Phase.BACKWARD]
    assert len(added) == len(kept) - 2  # those of encoder and decoder get nothing


def test_products_run_in_half_without_casts_and_the_loss_in_full() -> None:
    graph = _traced()
    products = [call for call in graph.calls if call.name == "aten.mm"]
    assert {graph.specs[call.inputs[0]].dtype for call in products} == {"bfloat16"}
    casts = [call for call in graph.calls if call.name == "aten._to_copy" and call.phase is Phase.FORWARD]
    assert [graph.specs[call.outputs[0]].dtype for call in casts] == ["float32"]


def test_fused_adam_reads_four_tensors_and_writes_three() -> None:
    graph = _traced(gradients="fp32")
    (update,) = [op for op in operators(graph) if op.name == "aten._fused_adamw_"]
    steps = 2 * 4
    assert update.work.read_bytes == 16 * WEIGHTS + steps
    assert update.work.write_bytes == 0.75 * update.work.read_bytes


class Pair(NamedTuple):
    """An output by name."""

    logits: torch.Tensor
    extra: list[int]


@dataclass
class Result:
    """An output with attributes."""

    logits: torch.Tensor
    extra: int = 0


class Output(OrderedDict[str, Any]):
    """An output that is read by key and by attribute, as those of transformers."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Returning(torch.nn.Module):
    """A linear layer that returns its result in a container."""

    def __init__(self, container: Any) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.container = container

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.container(self.linear(inputs))


@pytest.mark.parametrize(
    "container",
    [lambda x: Pair(x, [1]), lambda x: Result(x, 2), lambda x: Output(logits=x, extra=3)],
    ids=["named tuple", "data class", "dictionary with attributes"],
)
def test_outputs_keep_their_type(container: Any) -> None:
    example = Example(
        Returning(container), (torch.rand(2, 4),), lambda output: output.logits.square().mean(), samples=2
    )
    graph = trace(example, ResolvedOptions(precision="bf16", weights="bf16", master_weights=True))
    casts = [call for call in graph.calls if call.name == "aten._to_copy" and call.phase is Phase.FORWARD]
    assert [graph.specs[call.outputs[0]] for call in casts] == [((2, 3), "float32")]


def test_half_weights_of_full_precision_make_no_sense() -> None:
    with pytest.raises(InvalidRequest, match="give precision bf16"):
        ResolvedOptions(precision="fp32", weights="bf16")
    with pytest.raises(InvalidRequest, match="master_weights"):
        ResolvedOptions(precision="bf16", weights="bf16", gradients="fp32")
