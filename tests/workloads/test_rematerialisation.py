"""What a compiled step saves for its backward pass: as `torch.compile` chooses it."""

from __future__ import annotations

import pytest
from tests.support.partitioned import bytes_saved_by_torch, graph_of_module
from tests.support.small_models import MODELS, graph

from foretrain.prediction.memory.lifetimes import saved_bytes
from foretrain.workloads.fused_kernels import FUSED
from foretrain.workloads.fusion import fuse
from foretrain.workloads.graph import Buffer, Call, Graph, Nature, Phase, Role, Spec

FLOAT = 4
SAVED_NUMBERS = 4 * 64 * 256
"""Elements between the two layers of an MLP of `tests.support.partitioned`."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("MLP, GELU", "fp32"),
        ("MLP, ReLU and dropout", "fp32"),
        ("transformer, RMSNorm, SwiGLU", "bf16"),
        ("transformer, LayerNorm, GELU", "bf16"),
        ("transformer, eager attention", "bf16"),
        ("language model", "bf16"),
        ("convolutions, residual", "bf16"),
        ("convolutions, ReLU and pooling", "bf16"),
    ],
)
def test_saved_bytes_are_those_of_torch(name: str, weights: str) -> None:
    eager = graph_of_module(name, weights)
    assert saved_bytes(fuse(eager)) == pytest.approx(bytes_saved_by_torch(name, weights), rel=0.01)


def saved_of(compiled: Graph) -> list[Spec]:
    end = sum(call.phase is Phase.FORWARD for call in compiled.calls)
    kept = [buffer for buffer in compiled.buffers if buffer.role is Role.ACTIVATION and buffer.born < end]
    return [compiled.specs[buffer.spec] for buffer in kept if len(compiled.specs[buffer.spec].shape) > 0]


def test_a_relu_before_dropout_saves_a_mask_in_place_of_its_result() -> None:
    compiled = fuse(graph_of_module("MLP, ReLU and dropout", "fp32"))
    hidden = [spec for spec in saved_of(compiled) if spec.elements == SAVED_NUMBERS]
    assert sorted(spec.dtype for spec in hidden) == ["bool", "bool", "float32"]
    (writer,) = [call for call in compiled.calls if call.phase is Phase.FORWARD and call.name == FUSED][:1]
    assert {compiled.specs[output].dtype for output in writer.outputs} == {"bool", "float32"}


def test_a_product_of_activations_is_recomputed_from_its_factors() -> None:
    """Of gate, up, silu(gate) and their product, each of three blocks recomputes silu(gate) from the gate.

    The projections of attention are as wide.
    """
    eager = graph_of_module("transformer, RMSNorm, SwiGLU", "bf16")
    wide = [spec for spec in saved_of(eager) if spec.elements == 4 * 64 * 192]
    kept = [spec for spec in saved_of(fuse(eager)) if spec.elements == 4 * 64 * 192]
    assert (len(wide), len(kept)) == (3 * (4 + 1), 3 * (3 + 1))
    recomputing = [call for call in fuse(eager).calls if "aten.silu" in call.settings.get("fused", ())]
    assert sum(call.phase is Phase.BACKWARD for call in recomputing) == 3


def test_a_loss_saves_scores_in_the_type_they_have_and_no_logarithms() -> None:
    compiled = fuse(graph_of_module("language model", "bf16"))
    scores = [spec for spec in saved_of(compiled) if spec.elements == 4 * 64 * 1000]
    assert [spec.dtype for spec in scores] == ["bfloat16"]


@pytest.mark.parametrize(("name", "checkpoint"), [*((name, False) for name in MODELS), ("blocks", True)])
def test_lifetimes_are_consistent(name: str, checkpoint: bool) -> None:
    eager = graph(name, batch=64, optimizer=None, checkpoint_activations=checkpoint)
    compiled = fuse(eager)
    end = sum(call.phase is Phase.FORWARD for call in compiled.calls)
    written = {index for index, buffer in enumerate(compiled.buffers) if buffer.born < 0}
    for index, call in enumerate(compiled.calls):
        assert written.issuperset(buffer for buffer in call.reads if buffer not in call.writes)
        written.update(call.writes)
        for number in (*call.reads, *call.writes):
            assert compiled.buffers[number].born <= index <= compiled.buffers[number].dies
    for buffer in compiled.buffers:
        outlives = 0 <= buffer.born < end <= buffer.dies
        assert buffer.role is not Role.ACTIVATION or outlives
        assert buffer.role is not Role.TEMPORARY or not outlives
    assert saved_bytes(compiled) <= saved_bytes(eager)


def test_what_a_checkpoint_recomputes_from_is_saved() -> None:
    """The inputs of checkpointed blocks stay, and nothing inside a block is saved in the forward pass."""
    eager = graph("blocks", batch=64, checkpoint_activations=True)
    compiled = fuse(eager)
    tokens = 64 * 5 * 16 * FLOAT
    assert saved_bytes(eager) == pytest.approx(saved_bytes(compiled), abs=tokens)
    assert sum(call.recomputed for call in compiled.calls) > 0
    again = [call for call in compiled.calls if call.recomputed and call.name != FUSED]
    assert {call.name for call in again} <= {call.name for call in eager.calls if call.recomputed}


def step(*operators: str, saved_by: str) -> Graph:
    """A product, then operators one after the other, and backward calls that read each of their inputs."""
    specs = (Spec((8, 8), "float32"),)
    calls: list[Call] = []
    buffers = [Buffer(0, -1, 99, Role.INPUT)]

    def call(name: str, phase: Phase, reads: tuple[int, ...]) -> None:
        nature = Nature.POINTWISE if name != "aten.mm" else Nature.OTHER
        writes = (len(buffers),)
        role = Role.ACTIVATION if phase is Phase.FORWARD else Role.TEMPORARY
        buffers.append(Buffer(0, len(calls), len(calls), role))
        calls.append(Call(name, phase, "", (0,) * len(reads), (0,), reads, writes, {}, nature))

    call("aten.mm", Phase.FORWARD, (0, 0))
    for name in operators:
        call(name, Phase.FORWARD, (len(buffers) - 1,))
    made = len(buffers)
    for buffer in range(made - 1, 0, -1):
        call(saved_by, Phase.BACKWARD, (len(buffers) - 1, buffer))
    last = {number: index for index, each in enumerate(calls) for number in (*each.reads, *each.writes)}
    living = [
        buffer._replace(dies=last[number]) if buffer.born >= 0 else buffer
        for number, buffer in enumerate(buffers)
    ]
    return Graph(specs, tuple(calls), tuple(living), (), 1, 1, 0)


def test_only_the_product_is_saved_of_a_chain_of_pointwise_operators() -> None:
    chain = step("aten.exp", "aten.sin", "aten.cos", saved_by="aten.mul")
    assert saved_bytes(chain) == 4 * 64 * FLOAT
    compiled = fuse(chain)
    assert saved_bytes(compiled) == 64 * FLOAT
    backward = [call for call in compiled.calls if call.phase is Phase.BACKWARD]
    assert [call.name for call in backward] == [FUSED]
    assert backward[0].reads == compiled.calls[0].writes


def test_all_is_saved_if_products_read_it_in_the_backward_pass() -> None:
    chain = step("aten.exp", "aten.sin", saved_by="aten.mm")
    assert saved_bytes(fuse(chain)) == saved_bytes(chain) == 3 * 64 * FLOAT


def test_a_forward_pass_alone_is_left_as_it_is() -> None:
    forward = fuse(graph("blocks", forward_only=True))
    assert saved_bytes(forward) == 0
