"""Remedies taken together, for a step that no single one makes fit."""

from foretrain.facts.devices import device
from foretrain.prediction.memory.fitting import advice
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.workload import traced


def test_checkpointing_comes_with_the_others_when_none_is_enough_alone() -> None:
    request = WorkloadRequest("gpt2-medium", batch=8, seq_len=512)
    lean = WorkloadRequest("gpt2-medium", batch=8, seq_len=512, checkpoint_activations=True)
    plain_graph, lean_graph = traced(workload_of(request)), traced(workload_of(lean))
    found = advice(lambda _: plain_graph, 8, device("gtx1060-6gb"), checkpointed_at=lambda _: lean_graph)
    alone = [remedy for remedy in found if not remedy.change.startswith("checkpoint activations,")]
    together = [remedy for remedy in found if remedy.change.startswith("checkpoint activations,")]
    assert not any(remedy.fits for remedy in alone)
    assert any(remedy.fits for remedy in together)
    best_alone = min(remedy.memory.bytes for remedy in alone)
    assert min(remedy.memory.bytes for remedy in together) < best_alone
