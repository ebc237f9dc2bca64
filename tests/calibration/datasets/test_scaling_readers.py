"""Readers of Sia's and Gavel's timings, on rows as the files have them."""

import gzip
from pathlib import Path

import pytest
from calibration.scaling import gavel_jobs, gavel_timing, sia_jobs, sia_timing

from calibration.datasets import gavel, sia
from foretrain.errors import MissingData

SIA = """model,cluster,table,placement,local_bsz,step_time,sync_time,num_nodes,num_replicas
bert,aws,placements,14,4,2.109,1.712,,
cifar10,rtx,scalability,,32,0.1,0.05,3.0,8.0
"""
GAVEL = """device,workload,gpus,steps_per_second_summed_over_workers
k80,ResNet-50 (batch size 128),2,0.0
k80,LM (batch size 10),1,20.0
k80_unconsolidated,LM (batch size 10),1,20.0
k80_unconsolidated,LM (batch size 10),4,8.0
p100,LM (batch size 10),8,16.0
p100,Recommendation (batch size 512),1,3.0
"""


def test_sia(tmp_path: Path) -> None:
    file = tmp_path / sia.FILE
    file.parent.mkdir()
    file.write_bytes(gzip.compress(SIA.encode()))
    steps = sia.read(tmp_path)
    assert [(step.model, step.cluster, step.nodes, step.devices) for step in steps] == [
        ("bert", "aws-4xt4", 2, 5),
        ("resnet18", "8xrtx2080ti", 3, 8),
    ]
    timings = [sia_timing(step) for step in steps]
    assert [str(item.configuration) for item in timings] == ["1+4 at batch 4", "3+3+2 at batch 32"]
    assert timings[0].step_seconds == 2.109
    assert [(job.model, len(job.timings)) for job in sia_jobs(steps)] == [("bert", 1), ("resnet18", 1)]


def test_gavel(tmp_path: Path) -> None:
    file = tmp_path / gavel.FILE
    file.parent.mkdir()
    file.write_text(GAVEL)
    steps = gavel.read(tmp_path)
    assert len(steps) == 4, "a failed run and a network that ran on one GPU only are left out"
    timings = [gavel_timing(step) for step in steps]
    assert [str(item.configuration.placement) for item in timings] == ["1", "1", "1+1+1+1", "4+4"]
    # four workers make eight steps a second together: each step takes half a second
    assert [item.step_seconds for item in timings] == pytest.approx([0.05, 0.05, 0.5, 0.5])
    jobs = {job.cluster: job for job in gavel_jobs(steps)}
    assert [len(jobs[name].timings) for name in ("gavel-k80", "gavel-p100")] == [2, 1]


def test_absent_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="name the folder of public measurements"):
        sia.read(tmp_path)
    with pytest.raises(MissingData, match="name the folder of public measurements"):
        gavel.read(tmp_path)
