"""How published runs become requests, and how verdicts are counted."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from calibration.datasets.ultrascale import NanotronRun
from validation.did_it_run_suite import (
    FIGURES,
    LAYOUTS,
    MODELS,
    MPT,
    Asked,
    Judged,
    _confusion,
    _verdicts,
    _wrong,
    adapters,
    judge,
    layout,
    mpt_run,
)

from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_of, workload_of

GIB = 2.0**30
ROW = {
    "model": "1b", "width": "2048", "layers": "24", "heads": "16", "vocabulary": "50368", "seq_len": "4096",
    "gpu": "a100_40gb", "gpus": "16", "micro_batch": "3", "gradient_accumulation": "4",
    "activation_checkpointing": "1", "sharding": "SHARD_GRAD_OP", "precision": "bf16/PURE",
}  # fmt: skip


def test_a_run_of_mpt_as_a_request() -> None:
    settings = mpt_run(ROW).settings
    assert settings == {
        "model": f"{MODELS / 'mpt.py'}:mpt_1b",
        "on": "a100-sxm-40gb:8x2", "strategy": "zero2", "precision": "bf16", "attention": "flash",
        "batch": 12, "micro_batches": 4, "seq_len": 4096, "checkpoint_activations": True,
    }  # fmt: skip


def test_the_sizes_of_mpt_are_those_published_and_its_loss_keeps_no_full_precision_logits() -> None:
    graph = graph_of(
        workload_of(WorkloadRequest(f"{MODELS / 'mpt.py'}:mpt_125m", batch=2, seq_len=512, precision="bf16"))
    )
    assert graph.parameters == 124_131_840  # `NumParams` of llm-foundry's table at 512 tokens
    largest = max(graph.specs[buffer.spec].bytes for buffer in graph.buffers)
    assert largest == 50_368 * 768 * 4  # the embedding; FP32 logits would be larger


def test_a_layout_of_nanotron_as_a_request() -> None:
    run = NanotronRun("8B", 2, 2, 2, 4, 1, 1, 16, None, None)
    asked = layout(run)
    assert not asked.ran
    assert asked.settings["strategy"] == "tp=4,sp,pp=2,dp=2,layers=18+14,zero=1"  # a head of 2.2 blocks
    assert (asked.settings["on"], asked.settings["batch"]) == ("aws:p5.48xlarge:2", 16)


def test_every_figure_of_adapters_has_a_source_and_a_model_that_exists() -> None:
    with FIGURES.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) >= 35
    assert all(row["url"].startswith("https://") and row["ran"] in ("0", "1") for row in rows)
    for asked in adapters(FIGURES):
        model = asked.settings["model"]
        assert not model.startswith("hf:") or Path(model.removeprefix("hf:")).parent == MODELS
        assert "hf:" not in model or Path(model.removeprefix("hf:")).is_file()


def test_verdicts_are_counted_by_source() -> None:
    fitting = Judged(Asked(MPT, "a", True, {}), True, 1.0, 2.0, {"parameters": 1.0})
    too_large = Judged(Asked(MPT, "b", True, {}), False, 3 * GIB, 2 * GIB, {"parameters": 3 * GIB})
    optimistic = Judged(Asked(LAYOUTS, "c", False, {}), True, 1.0, 2.0)
    found = _verdicts([fitting, too_large, optimistic])
    assert found["fits or does not: all"]["foretrain"].share == pytest.approx(1 / 3)
    assert found[f"fits or does not: {MPT}"]["foretrain"].right == 1
    assert _confusion([fitting, too_large, optimistic]).rows[0] == (MPT, "1", "1", "0", "0")
    assert _wrong([fitting, too_large]).rows == (("b", "yes", "3.0", "2.0", "parameters 3.0"),)


def test_a_request_that_is_refused_is_listed_not_counted() -> None:
    judged = judge(Asked(MPT, "x", True, {"model": "no-such-model", "on": "t4"}))
    assert "no-such-model" in judged.refusal
