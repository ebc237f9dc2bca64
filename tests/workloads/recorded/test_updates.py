"""The optimizer's part of a step, written for a list of parameters, is what a trace records."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph, Role
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.recorded.recording import find_difference, without_update
from foretrain.workloads.recorded.updates import EIGHT_BIT, UPDATES, NoUpdate, with_update
from foretrain.workloads.tracing.optimizers import BUILDERS
from foretrain.workloads.tracing.step import trace

STORAGES: dict[str, ResolvedOptions] = {
    "fp32": ResolvedOptions(),
    "autocast": ResolvedOptions(precision="bf16"),
    "bf16": ResolvedOptions(precision="bf16", weights="bf16"),
    "masters": ResolvedOptions(precision="bf16", weights="bf16", master_weights=True),
    "fp32 gradients": ResolvedOptions(
        precision="bf16", weights="bf16", master_weights=True, gradients="fp32"
    ),
}


class _Model(nn.Module):
    """A matrix of 8,000 weights (its state takes eight bits), small tensors, one frozen, one without use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(100, 80)
        self.norm = nn.LayerNorm(80)
        self.head = nn.Linear(80, 3, bias=False)
        self.unused = nn.Parameter(torch.zeros(3))
        self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.head(self.norm(self.linear(x))) * self.frozen
        return output.sum()


def _trace(options: ResolvedOptions) -> Graph:
    with torch.device("meta"):
        example = Example(_Model(), (torch.zeros(2, 100),), None, samples=2)
    return trace(example, options)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", [*UPDATES, *EIGHT_BIT])
def test_an_update_is_as_traced(name: str, storage: str) -> None:
    options = replace(STORAGES[storage], optimizer=name)
    without = without_update(_trace(replace(options, optimizer="sgd")))
    written = with_update(replace(without, options=options), options)
    assert find_difference(written, _trace(options)) is None


@pytest.mark.parametrize("name", sorted(BUILDERS.keys() - UPDATES.keys() - EIGHT_BIT.keys()))
def test_optimizers_whose_calls_depend_on_shapes_are_traced(name: str) -> None:
    options = ResolvedOptions(optimizer=name)
    with pytest.raises(NoUpdate):
        with_update(_trace(replace(options, optimizer=None)), options)


def test_state_has_the_spec_of_its_parameter_and_not_of_an_activation_of_that_shape() -> None:
    """The activation's shape changes with the batch, as a family has it."""
    options = ResolvedOptions(optimizer="adamw")
    graph = _trace(replace(options, optimizer=None))
    weight = next(each for each in graph.buffers if each.name == "linear.weight")
    activation = graph.specs[weight.spec]
    written = with_update(replace(graph, specs=(*graph.specs, activation), options=options), options)
    state = [
        each.spec
        for each in written.buffers
        if each.role is Role.OPTIMIZER_STATE and each.name == weight.name and written.specs[each.spec].shape
    ]
    assert state == [weight.spec, weight.spec]
