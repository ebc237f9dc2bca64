"""What fused operators of a framework hold: unused gradients, logits and their gradient in one place."""

from __future__ import annotations

from foretrain.prediction.memory.lifetimes import MemoryUse, saved_bytes, tensor_lifetimes
from foretrain.prediction.strategies.program import MemoryOptions
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role, Spec
from foretrain.workloads.options import ResolvedOptions

HALF, FULL, EXPERTS = Spec((4, 256), "bfloat16"), Spec((4, 256), "float32"), Spec((8, 4, 256), "bfloat16")
KIB = 1024


def call(name: str, phase: Phase, reads: tuple[int, ...], writes: tuple[int, ...], part: str = "") -> Call:
    return Call(name, phase, "", (), (), reads, writes, {"part": part} if part else {})


def graph(specs: tuple[Spec, ...], calls: tuple[Call, ...], buffers: tuple[Buffer, ...]) -> Graph:
    options = ResolvedOptions(precision="bf16", weights="bf16", master_weights=True, gradients="fp32")
    return Graph(specs, calls, buffers, (), 1, 1, 0, options)


def unused_bytes(of: Graph) -> int:
    """Gradients beside the FP32 ones of the parameters."""
    held = tensor_lifetimes(of, MemoryOptions(), 0).resident.bytes_of(MemoryUse.GRADIENTS)
    return held - sum(of.buffer_bytes(i) for i, each in enumerate(of.buffers) if each.role is Role.GRADIENT)


def layers(count: int, weight: int, adds: bool, together: bool = False) -> Graph:
    """Layers whose weights have one shape, with products that add to the gradients themselves or do not."""
    weights = [Buffer(weight, -1, 9, Role.PARAMETER, f"layers.{each}.weight") for each in range(count)]
    gradients = [Buffer(1, -1, 9, Role.GRADIENT, each.name) for each in weights]
    own = [(count + each,) for each in range(count)]
    groups = [sum(own, ())] if together else own
    calls = [call("aten.mm", Phase.BACKWARD, group if adds else (), group) for group in groups]
    return graph((HALF, FULL, EXPERTS), tuple(calls), (*weights, *gradients))


def test_products_that_add_to_gradients_leave_one_unused_gradient_for_each_shape() -> None:
    assert unused_bytes(layers(3, 0, adds=True)) == 2 * KIB
    assert unused_bytes(layers(3, 0, adds=False)) == 0


def test_layers_in_one_product_have_one_together() -> None:
    assert unused_bytes(layers(2, 0, adds=True, together=True)) == 4 * KIB


def test_experts_of_a_group_share_one() -> None:
    assert unused_bytes(layers(1, 2, adds=True)) == 2 * KIB


def loss_graph(part: str) -> Graph:
    """Logits in half precision, their FP32 form and probabilities inside the loss, and their gradient."""
    calls = (
        call("aten.mm", Phase.FORWARD, (), (0,)),
        call("cast", Phase.FORWARD, (0,), (1,), part),
        call("softmax", Phase.FORWARD, (1,), (2,)),
        call("backward", Phase.BACKWARD, (2,), (3,), part),
        call("aten.mm", Phase.BACKWARD, (3,), ()),
    )
    buffers = (
        Buffer(0, 0, 1, Role.TEMPORARY),
        Buffer(1, 1, 2, Role.TEMPORARY),
        Buffer(1, 2, 3, Role.ACTIVATION),
        Buffer(0, 3, 4, Role.TEMPORARY),
    )
    return graph((HALF, FULL), calls, buffers)


def lives(of: Graph) -> list[tuple[int, int, int]]:
    passing = tensor_lifetimes(of, MemoryOptions(), 0).passing
    return list(zip(passing.bytes.tolist(), passing.starts.tolist(), passing.ends.tolist(), strict=True))


def test_a_fused_loss_holds_logits_until_their_gradient_takes_their_place() -> None:
    assert sorted(lives(loss_graph("loss"))) == [(2 * KIB, 0, 2), (2 * KIB, 3, 4)]
    assert saved_bytes(loss_graph("loss")) == 2 * KIB


def test_a_loss_of_several_kernels_holds_all_between_them() -> None:
    assert len(lives(loss_graph("norm"))) == 4
    assert saved_bytes(loss_graph("norm")) == 4 * KIB
