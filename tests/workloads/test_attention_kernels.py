"""The kernel of fused attention is an option; all kernels share one recorded graph."""

from __future__ import annotations

import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.scenario import as_stored, storage_of
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.ops import ATTENTION_GENERATIONS, Kind
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import description, graph_at, graph_of, workload_of


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


@pytest.mark.parametrize(
    ("year", "given", "framework", "attention"),
    [
        (None, None, None, "sdpa"),
        (2022, None, None, "eager"),
        (2023, None, None, "flash1"),
        (2025, "sdpa", None, "flash2"),
        (2022, "flash", None, "flash1"),
        (2024, "flash", None, "flash2"),
        (2023, "cudnn", None, "cudnn"),  # a kernel that is named stays
        (2024, None, "megatron", "sdpa"),  # Transformer Engine: cuDNN on Hopper, FlashAttention 2 before
        (2026, None, "nanotron", "flash2"),  # brings its own
    ],
)
def test_the_year_of_the_software_decides_what_is_not_named(
    year: int | None, given: str | None, framework: str | None, attention: str
) -> None:
    workload = workload_of(
        WorkloadRequest("gpt2-small", software_year=year, attention=given, framework=framework)
    )
    assert workload.options.attention == workload.sizes.attention == attention
    assert description(workload, 1, 1).get("software_year") == year


def test_a_layout_of_megatron_has_the_attention_of_its_library() -> None:
    """Plain PyTorch of 2024 calls FlashAttention 2 everywhere, Transformer Engine lets the GPU decide."""
    asked = workload_of(WorkloadRequest("gpt2-small", precision="bf16", software_year=2024))
    divided, whole = (as_stored(asked, storage_of(layout_of(name, 8, 8))) for name in ("tp=2,dp=4", "ddp"))
    assert divided.options.attention == divided.sizes.attention == "sdpa"
    assert whole.options.attention == whole.sizes.attention == "flash2"
    named = workload_of(WorkloadRequest("gpt2-small", software_year=2024, attention="flash1"))
    assert as_stored(named, storage_of(layout_of("tp=2,dp=4", 8, 8))).options.attention == "flash1"


def test_a_year_changes_nothing_of_models_without_attention() -> None:
    for year in (2022, 2023):
        workload = workload_of(WorkloadRequest("cifar-resnet20", batch=2, software_year=year))
        now = workload_of(WorkloadRequest("cifar-resnet20", batch=2))
        assert graph_of(workload).calls == graph_of(now).calls


def test_there_was_no_flash_attention_before_2022() -> None:
    with pytest.raises(InvalidRequest, match="no flash attention in 2021; give `attention` eager"):
        workload_of(WorkloadRequest("gpt2-small", software_year=2021, attention="flash"))
