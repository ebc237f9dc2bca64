"""Selective checkpointing, gradient release and offload: what they keep, and when."""

import pytest
from tests.support.small_models import graph

from foretrain.errors import InvalidRequest
from foretrain.prediction.memory.lifetimes import saved_bytes
from foretrain.workloads.executed import offload_optimizer
from foretrain.workloads.graph import Graph, Phase, Role, checkpoint_bytes
from foretrain.workloads.options import ResolvedOptions, WorkloadRequest
from foretrain.workloads.workload import workload_of


def _blocks(**options: bool) -> Graph:
    return graph("blocks", precision="bf16", weights="bf16", **options)  # type: ignore[arg-type]


def _recomputed(traced: Graph) -> set[str]:
    return {call.name for call in traced.calls if call.recomputed}


def test_selective_checkpointing_recomputes_all_but_products_and_attention() -> None:
    full = _blocks(checkpoint_activations=True)
    selective = _blocks(checkpoint_activations=True, selective_checkpointing=True)
    heavy = {"aten.mm", "aten.addmm", "foretrain.attention"}
    assert heavy & _recomputed(full)
    assert not heavy & _recomputed(selective)
    assert "aten.native_layer_norm" in _recomputed(selective)
    assert saved_bytes(full) < saved_bytes(selective) < saved_bytes(_blocks())


def test_released_gradients_never_live_together() -> None:
    def most_gradients(traced: Graph) -> int:
        gradients = [buffer for buffer in traced.buffers if buffer.role is Role.GRADIENT]
        calls = range(len(traced.calls))
        return max(sum(buffer.born <= call <= buffer.dies for buffer in gradients) for call in calls)

    held, released = graph("mlp"), graph("mlp", gradient_release=True)
    assert most_gradients(held) == 4, "two weights and two biases"
    assert most_gradients(released) <= 2
    assert not any(call.phase is Phase.OPTIMIZER for call in released.calls)
    updates = [call for call in released.calls if call.name == "aten._foreach_addcdiv_"]
    assert len(updates) == 4, "one for each parameter, in the backward pass"


def test_an_offloaded_optimizer_leaves_the_graph_and_is_still_in_the_checkpoint() -> None:
    whole = graph("mlp")
    kept = offload_optimizer(graph("mlp", offload=("optimizer",)))
    assert not any(call.phase is Phase.OPTIMIZER for call in kept.calls)
    assert not any(buffer.role is Role.OPTIMIZER_STATE for buffer in kept.buffers)
    assert kept.offloaded_state_bytes_per_parameter == 8, "two FP32 moments"
    assert checkpoint_bytes(kept) == checkpoint_bytes(whole) == 4 * 3 * (8 * 16 + 16 + 16 * 4 + 4)
    for call in kept.calls:
        assert all(buffer < len(kept.buffers) for buffer in (*call.reads, *call.writes))


def test_offloaded_parameters_take_the_optimizer_with_them() -> None:
    asked = workload_of(WorkloadRequest("mnist-cnn", offload=("parameters",)))
    assert asked.options.offload == ("optimizer", "parameters")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selective_checkpointing": True}, "requires `checkpoint_activations`"),
        ({"gradient_release": True, "optimizer": None}, "requires an optimizer"),
        ({"gradient_release": True, "offload": ("optimizer",)}, "updates on the device"),
        ({"offload": ("disk",)}, "offload 'disk' is not one of optimizer, parameters, activations"),
        ({"offload": ("optimizer",), "forward_only": True}, "is for training"),
    ],
)
def test_contradictions_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        ResolvedOptions(**options)  # type: ignore[arg-type]
