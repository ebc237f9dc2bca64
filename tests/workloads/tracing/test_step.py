"""The trace is what really runs: same operators as on a real device, right phases, right memory."""

from collections import Counter

import pytest
import torch
from tests.support.small_models import MODELS, example, graph
from torch import nn

from foretrain.errors import InvalidRequest
from foretrain.workloads.example import Example
from foretrain.workloads.graph import Graph, Phase, Role, Spec
from foretrain.workloads.ops import Direction, Kind
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.rules import operators
from foretrain.workloads.tracing.step import trace


def names(traced: Graph, phase: Phase | None = None) -> list[str]:
    return [call.name for call in traced.calls if phase is None or call.phase is phase]


def operands(traced: Graph) -> list[list[Spec]]:
    return [
        [traced.specs[index] for index in call.inputs if index >= 0]
        for call in traced.calls
        if call.phase is not Phase.OPTIMIZER
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_the_operators_are_those_of_a_real_run(name: str, optimizer: str) -> None:
    on_meta = graph(name, optimizer=optimizer)
    on_cpu = graph(name, optimizer=optimizer, device="cpu")
    phases = list(Phase) if optimizer == "sgd" else [Phase.FORWARD, Phase.BACKWARD]
    for phase in phases:  # Adam counts steps on the host, which on a CPU looks like device work
        assert names(on_meta, phase) == names(on_cpu, phase)
    executed = [operands(traced) for traced in (on_meta, on_cpu)]
    assert executed[0] == executed[1]


def test_a_linear_layer_by_hand() -> None:
    traced = graph("mlp", optimizer=None)
    assert Counter(names(traced, Phase.FORWARD))["aten.addmm"] == 2
    # second layer: gradients of weight and input; first layer: of its weight only
    assert Counter(names(traced, Phase.BACKWARD))["aten.mm"] == 3
    assert not names(traced, Phase.OPTIMIZER)


def test_backward_calls_know_their_layer() -> None:
    traced = graph("mlp", optimizer=None)
    modules = [call.module for call in traced.calls if call.name == "aten.mm"]
    assert modules == ["second", "second", "first"]


def test_parameters_and_roles() -> None:
    traced = graph("mlp", optimizer="adamw")
    assert traced.parameters == traced.trainable_parameters == 8 * 16 + 16 + 16 * 4 + 4
    sizes: Counter[Role] = Counter()
    for buffer in traced.buffers:
        sizes[buffer.role] += traced.specs[buffer.spec].bytes
    assert sizes[Role.GRADIENT] == sizes[Role.PARAMETER] == 4 * traced.parameters
    assert sizes[Role.OPTIMIZER_STATE] == 2 * sizes[Role.PARAMETER]
    assert sizes[Role.INPUT] == 4 * 8 * 4


def test_saved_activations_by_hand() -> None:
    """The MLP keeps the ReLU's output (batch 4 x 16) and its own output, squared for the loss (4 x 4)."""
    traced = graph("mlp", optimizer=None)
    kept = sorted(traced.specs[b.spec].shape for b in traced.buffers if b.role is Role.ACTIVATION)
    assert (4, 16) in kept
    assert (4, 4) in kept
    assert (4, 8) not in kept  # the input is an input


def test_what_a_layer_saves_by_hand() -> None:
    """The first layer saves its input, the ReLU its output, the second layer its input and its weight."""
    traced = graph("mlp", optimizer=None)
    saved = {
        (call.name, call.module): {traced.buffers[buffer].role for buffer in traced.saved[index]}
        for index, call in enumerate(traced.calls)
        if traced.saved[index]
    }
    assert saved == {
        ("aten.addmm", "first"): {Role.INPUT},
        ("aten.relu", ""): {Role.ACTIVATION},
        ("aten.addmm", "second"): {Role.ACTIVATION, Role.PARAMETER},
        ("aten.pow", ""): {Role.ACTIVATION},
    }


def test_forward_only_has_no_backward_and_keeps_nothing() -> None:
    traced = graph("conv", forward_only=True)
    assert {call.phase for call in traced.calls} == {Phase.FORWARD}
    assert not [b for b in traced.buffers if b.role in (Role.GRADIENT, Role.OPTIMIZER_STATE)]


def test_attention_and_dropout_are_single_operators() -> None:
    forward = Counter(names(graph("blocks"), Phase.FORWARD))
    assert forward["foretrain.attention"] == 3
    assert forward["aten.native_dropout"] == 3 * 3
    assert not forward["aten._softmax"]


def test_eager_attention_stores_its_scores() -> None:
    forward = Counter(names(graph("blocks", attention="eager"), Phase.FORWARD))
    assert forward["aten._softmax"] == 3
    assert forward["aten.bmm"] == 2 * 3
    assert not forward["foretrain.attention"]


def test_an_lstm_is_one_operator() -> None:
    traced = Counter(names(graph("lstm")))
    assert traced["foretrain.rnn"] == traced["foretrain.rnn_backward"] == 1


def test_mixed_precision_casts_each_weight_once_and_runs_products_in_half() -> None:
    traced = graph("mlp", precision="bf16", optimizer=None)
    products = [call for call in traced.calls if call.name in {"aten.addmm", "aten.mm"}]
    assert {traced.specs[index].dtype for call in products for index in call.outputs} == {"bfloat16"}
    cast = [b.name for b in traced.buffers if b.role is Role.CAST_WEIGHT]
    assert sorted(cast) == ["first.bias", "first.weight", "second.bias", "second.weight"]
    gradients = {traced.specs[b.spec].dtype for b in traced.buffers if b.role is Role.GRADIENT}
    assert gradients == {"float32"}


def test_mixed_precision_norms_stay_in_full_precision() -> None:
    traced = graph("blocks", precision="fp16")
    norms = [call for call in traced.calls if call.name == "aten.native_layer_norm"]
    assert {traced.specs[call.inputs[0]].dtype for call in norms} == {"float32"}


def test_mixed_precision_matches_torch_on_the_types_of_outputs_and_gradients() -> None:
    """Against real CPU autocast, whose lists agree with CUDA's for products and element-wise operators."""
    model = example("mlp")
    with torch.autocast("cpu", torch.bfloat16):
        out = model.module(*model.inputs)
    assert out.dtype == torch.bfloat16
    traced = graph("mlp", precision="bf16", forward_only=True)
    second = [layer for layer in traced.layers if layer.path == "second"]
    assert traced.specs[second[0].outputs[0]].dtype == "bfloat16"


def test_checkpointing_recomputes_and_keeps_less() -> None:
    plain, lean = graph("blocks", batch=8), graph("blocks", batch=8, checkpoint_activations=True)
    recomputed = [call for call in lean.calls if call.recomputed]
    assert Counter(call.name for call in recomputed)["foretrain.attention"] == 3
    assert all(call.phase is Phase.BACKWARD for call in recomputed)
    assert kept_bytes(lean) < 0.4 * kept_bytes(plain)
    assert lean.layers == plain.layers


def test_what_is_recomputed_is_forward_work_again() -> None:
    plain, lean = (graph("blocks", optimizer=None, checkpoint_activations=flag) for flag in (False, True))
    kinds = (Kind.LINEAR, Kind.ATTENTION)
    once, twice = (
        Counter((op.work.kind, op.work.direction) for op in operators(traced) if op.work.kind in kinds)
        for traced in (plain, lean)
    )
    again = Counter(
        (op.work.kind, op.work.direction) for op in operators(lean) if op.recomputed and op.work.kind in kinds
    )
    assert {direction for _, direction in again} == {Direction.FORWARD}
    assert twice == once + again


def test_weights_cast_for_a_recomputation_do_not_outlive_it() -> None:
    lean = graph("blocks", precision="bf16", checkpoint_activations=True)
    again = [index for index, call in enumerate(lean.calls) if call.recomputed]
    cast = [
        buffer
        for buffer in lean.buffers
        if buffer.born in again and lean.calls[buffer.born].name == "aten._to_copy"
    ]
    first_block_ends = max(
        index for index in again if lean.calls[index].module == lean.calls[again[0]].module
    )
    early = [buffer for buffer in cast if buffer.born <= first_block_ends]
    assert early
    assert all(buffer.dies < again[-1] for buffer in early)


def kept_bytes(traced: Graph) -> int:
    return sum(traced.specs[b.spec].bytes for b in traced.buffers if b.role is Role.ACTIVATION)


def test_a_model_without_blocks_cannot_be_checkpointed() -> None:
    with pytest.raises(InvalidRequest, match="no repeated blocks"):
        graph("mlp", checkpoint_activations=True)


def test_channels_last_reaches_the_convolution() -> None:
    for channels_last in (False, True):
        traced = graph("conv", channels_last=channels_last)
        flags = [call.settings.get("channels_last") for call in traced.calls if "convolution" in call.name]
        assert flags
        assert all(bool(flag) is channels_last for flag in flags)


def test_shared_parameters_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 4)
            self.head = nn.Linear(4, 10, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.embed(ids))
            return out

    tied = Example(Tied(), (torch.zeros(2, 3, dtype=torch.long),), lambda out: out.sum(), 2)
    assert trace(tied, ResolvedOptions()).parameters == 40


def test_a_failing_layer_is_named_with_its_own_error() -> None:
    wrong = Example(example("mlp").module, (torch.randn(4, 9),), lambda out: out.sum(), 4)
    with pytest.raises(InvalidRequest, match=r"in layer 'first': RuntimeError: .*9.*8"):
        trace(wrong, ResolvedOptions())


def test_control_flow_on_data_is_explained() -> None:
    class Branching(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs if inputs.sum() > 0 else -inputs

    with pytest.raises(InvalidRequest, match="depends on the data"):
        trace(Example(Branching(), (torch.randn(3, requires_grad=True),), None, 3), ResolvedOptions())


def test_a_loss_that_is_no_tensor_is_explained() -> None:
    wrong = Example(example("mlp").module, (torch.randn(4, 8),), lambda out: {"loss": out}, 4)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidRequest, match="the loss is a dict"):
        trace(wrong, ResolvedOptions())


def test_a_loss_of_several_numbers_is_refused_as_pytorch_refuses_it() -> None:
    inputs = (torch.randn(4, 8),)
    vector = Example(example("mlp").module, inputs, lambda out: out.sum(1), 4)
    with pytest.raises(InvalidRequest, match=r"of shape \(4,\).*return its mean"):
        trace(vector, ResolvedOptions())
    one = Example(example("mlp").module, inputs, lambda out: out.sum().reshape(1), 4)
    assert trace(one, ResolvedOptions()).calls
    assert trace(vector, ResolvedOptions(forward_only=True)).calls


def test_an_unknown_optimizer_suggests_near_ones() -> None:
    with pytest.raises(InvalidRequest, match="did you mean adamw"):
        graph("mlp", optimizer="adamww")


def test_unknown_precision_and_attention() -> None:
    with pytest.raises(InvalidRequest, match="precision 'fp12' is not one of"):
        ResolvedOptions(precision="fp12")
    with pytest.raises(InvalidRequest, match="attention 'fast' is not one of"):
        ResolvedOptions(attention="fast")
