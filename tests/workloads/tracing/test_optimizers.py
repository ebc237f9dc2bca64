"""Every optimizer by name: it traces for convolutions and transformers, and its state has the right size."""

import pytest
import torch
from tests.support.small_models import graph

from foretrain.workloads.graph import Graph, Phase, Role
from foretrain.workloads.rules import operators, unknown_names
from foretrain.workloads.tracing.optimizers import BUILDERS

WEIGHTS = {
    "conv": (8 * 3 * 3 * 3 + 8) + (8 + 8) + (5 * 128 + 5),  # convolution, batch norm, linear
    "blocks": 3 * ((48 * 16 + 48) + (16 * 16 + 16) + 2 * 32 * 16 + (32 + 16) + 4 * 16),
}
TENSORS = {"conv": 6, "blocks": 3 * 12}
MOMENTS = {
    "sgd": 0, "momentum": 1, "nesterov": 1, "adam": 2, "adamw": 2, "adamw-fused": 2, "nadam": 2, "radam": 2,
    "adamax": 2, "adagrad": 1, "adadelta": 2, "rmsprop": 1, "lion": 1, "adamw-8bit": 2, "lion-8bit": 1,
    "paged-adamw": 2, "paged-adamw-8bit": 2, "paged-lion-8bit": 1,
}  # fmt: skip
"""Tensors of state of the size of a weight."""
FACTORED = {
    # Means over the last dimension and over the one before it; vectors have all their second moments.
    "conv": (8 * 3 * 3 + 8 * 3 * 3) + (5 + 128) + (8 + 8 + 8 + 5),
    "blocks": 3 * ((48 + 16) + (16 + 16) + 2 * (32 + 16) + (48 + 16 + 32 + 16 + 4 * 16)),
}
MUON = {
    # One moment of matrices in hidden layers, two of all else; the only matrix of "conv" is its output layer.
    "conv": 2 * WEIGHTS["conv"],
    "blocks": 2 * WEIGHTS["blocks"] - 3 * (48 * 16 + 16 * 16 + 2 * 32 * 16),
}


def _state_bytes(traced: Graph) -> int:
    return sum(
        traced.specs[buffer.spec].bytes for buffer in traced.buffers if buffer.role is Role.OPTIMIZER_STATE
    )


@pytest.mark.parametrize("half_weights", [False, True])
@pytest.mark.parametrize("model", list(WEIGHTS))
@pytest.mark.parametrize("name", list(BUILDERS))
def test_state_has_the_size_derived_by_hand(name: str, model: str, half_weights: bool) -> None:
    traced = graph(
        model,
        precision="bf16",
        optimizer=name,
        weights="bf16" if half_weights else "fp32",
        master_weights=half_weights,
    )
    special = {"adafactor": FACTORED, "muon": MUON}
    state = special[name][model] if name in special else MOMENTS[name] * WEIGHTS[model]
    steps = TENSORS[model] if name in ("adamw-fused", "paged-adamw") else 0
    masters = WEIGHTS[model] if half_weights else 0
    assert traced.parameters == WEIGHTS[model]
    assert _state_bytes(traced) == 4 * (state + steps + masters)
    assert any(call.phase is Phase.OPTIMIZER for call in traced.calls)
    assert unknown_names(operators(traced)) == ()


def test_adafactor_multiplies_row_and_column_of_each_matrix() -> None:
    updates = [op for op in operators(graph("mlp", optimizer="adafactor")) if op.phase is Phase.OPTIMIZER]
    products = [op for op in updates if op.name == "aten.mm"]
    assert [op.work.flop for op in products] == [2 * 16 * 8, 2 * 4 * 16]


@pytest.mark.parametrize(("name", "moments"), [("adamw-8bit", 2), ("lion-8bit", 1)])
def test_large_tensors_have_state_in_eight_bits_and_a_scale_per_256(name: str, moments: int) -> None:
    weight = torch.nn.Parameter(torch.zeros(100, 50))  # 5,000 elements: 20 blocks
    small = torch.nn.Parameter(torch.zeros(4095))
    weight.grad, small.grad = torch.zeros_like(weight), torch.zeros_like(small)
    built = BUILDERS[name]([weight, small])
    built.step()
    sizes = [sum(each.nbytes for each in built.state[parameter].values()) for parameter in (weight, small)]
    assert sizes == [moments * (5000 + 4 * 20), moments * 4 * 4095]


def test_lion_moves_each_weight_by_the_sign_of_its_blend() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0, -1.0, 0.0]))
    weight.grad = torch.tensor([0.5, -2.0, 0.0])
    BUILDERS["lion"]([weight]).step()
    assert weight.tolist() == pytest.approx([1 - 1e-5 - 1e-4, -1 + 1e-5 + 1e-4, 0.0])


def test_muon_orthogonalises_each_hidden_matrix_in_five_iterations_of_three_products() -> None:
    updates = [op for op in operators(graph("blocks", optimizer="muon")) if op.phase is Phase.OPTIMIZER]
    products = [op for op in updates if op.name in ("aten.mm", "aten.addmm")]
    assert len(products) == 3 * 4 * 5 * 3, "three blocks of four matrices"
    assert max(op.work.flop for op in products) == 2 * 16 * 16 * 48, "on the shorter side"
