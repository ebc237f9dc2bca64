"""The kernel of fused attention is an option; all kernels share one recorded graph."""

from __future__ import annotations

import pytest

from foretrain.errors import InvalidRequest
from foretrain.workloads.ops import ATTENTION_GENERATIONS, Kind
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import graph_at, graph_of


def _generations(attention: str, precision: str = "bf16") -> set[str]:
    request = WorkloadRequest("gpt2-small", batch=2, seq_len=64, precision=precision, attention=attention)
    graph = graph_of(workload_of(request))
    works = [op.work for op in operators(graph) if op.work.kind is Kind.ATTENTION]
    return {ATTENTION_GENERATIONS[work.dims.get("generation", 0)] for work in works}


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_named_kernel_is_the_one_of_every_attention(precision: str) -> None:
    """`flash` is version 2, as in the package of that name; `sdpa` leaves the choice to the GPU."""
    assert _generations("flash3", precision) == {"flash3"}
    assert _generations("flash", precision) == {"flash2"}
    assert _generations("sdpa", precision) == {"default"}


def test_full_precision_has_a_kernel_of_its_own() -> None:
    """Flash kernels compute in half precision only."""
    assert _generations("flash2", "fp32") == {"default"}


def test_the_kernel_stays_at_another_batch() -> None:
    workload = workload_of(
        WorkloadRequest("gpt2-small", batch=2, seq_len=64, precision="bf16", attention="cudnn")
    )
    works = [op.work for op in operators(graph_at(workload, 6)) if op.work.kind is Kind.ATTENTION]
    assert {work.dims["generation"] for work in works} == {ATTENTION_GENERATIONS.index("cudnn")}


def test_a_model_without_attention_has_no_kernel_to_choose() -> None:
    with pytest.raises(InvalidRequest, match="has no attention of a kind to choose"):
        graph_of(workload_of(WorkloadRequest("cifar-resnet20", batch=2, attention="flash2")))
