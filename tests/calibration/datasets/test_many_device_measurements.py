"""Readers of layouts measured on many devices."""

from pathlib import Path

import pytest
from calibration.datasets.ultrascale import NanotronRun, can_run, flop_per_token, stage_starts

from calibration.datasets import ultrascale, vtrain


def _run(model: str = "1B", **changes: int) -> NanotronRun:
    degrees = {"nodes": 1, "data": 8, "pipeline": 1, "tensor": 1, "zero_stage": 0, **changes}
    known = {"micro_batch": 1, "micro_batches": 32, **degrees}
    return NanotronRun(model=model, tokens_per_second=None, memory_bytes=None, **known)


def test_a_step_of_nanotron(tmp_path: Path) -> None:
    folder = tmp_path / "ultrascale"
    folder.mkdir()
    (folder / "llama_h100_3d_parallel.csv").write_text(
        "model,nodes,mbs,grad_acc,gbs,dp,pp,tp,zero,mfu_pct,tok_s_gpu,tok_s,gpu_mem_gb\n"
        "1B,1,2,16,256,8,1,1,0,39.2,40150.0,321200.0,50.2\n"
        "8B,1,4,64,256,1,8,1,0,,,,\n"
    )
    ran, did_not = ultrascale.read(tmp_path)
    assert ran.seconds == pytest.approx(256 * 4096 / 321200)
    assert ran.memory_bytes == 50.2 * 2**30
    assert did_not.seconds is did_not.memory_bytes is None
    assert did_not.devices == 8


def test_flop_of_a_token_are_those_the_published_mfu_counts() -> None:
    assert flop_per_token(_run()) == pytest.approx(0.392 * 989e12 / 40150, rel=2e-3)


def test_the_block_that_fills_a_stage_still_belongs_to_it() -> None:
    assert stage_starts(_run(pipeline=2)) == ("blocks.11",)  # 16 blocks and an output layer worth 4
    assert stage_starts(_run(pipeline=4)) == ("blocks.6", "blocks.11", "norm")


def test_stages_must_hold_something_and_be_kept_busy() -> None:
    assert can_run(_run(pipeline=8))
    assert not can_run(_run(pipeline=16))
    assert can_run(_run("8B", pipeline=32))
    assert not can_run(_run("8B", pipeline=64))
    assert not can_run(_run(pipeline=8, micro_batches=6))


def test_the_embedding_is_tied_where_the_smaller_model_has_one_stage() -> None:
    assert ultrascale.model_of(_run()).config["tied"]
    assert not ultrascale.model_of(_run(pipeline=2)).config["tied"]
    assert not ultrascale.model_of(_run("8B")).config["tied"]


def test_an_iteration_of_megatron(tmp_path: Path) -> None:
    folder = tmp_path / "vtrain"
    folder.mkdir()
    (folder / "megatron_single_node_a100.csv").write_text(
        "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
        "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
        "8,32,4,1024,16,24,1024,2,2,2,219.732754\n"
    )
    (run,) = vtrain.read_steps(tmp_path)
    assert run.seconds == pytest.approx(0.219732754)
    assert (run.devices, run.micro_batches, run.shape) == (8, 4, "width 1024, 24 layers")
    assert vtrain.model_of(run).options.master_weights
