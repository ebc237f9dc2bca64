"""Reading Lambda's runs on several GPUs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from calibration.datasets import lambda_labs_scaling

TENSORFLOW_ROWS = """system,data,var_update,prec,ngpu,mode,model,batch_per_gpu,images_per_sec
7742-1xA100-SXM4-40GB_TF2_3,syn,replicated,fp16,1,train,resnet50,100,1000
7742-4xA100-SXM4-40GB_TF2_3,syn,replicated,fp16,4,train,resnet50,100,2000
7742-4xA100-SXM4-40GB_TF2_3,syn,replicated,fp16,4,inference,resnet50,100,9000
3970X-Radeon-VII,syn,replicated,fp16,2,train,resnet50,100,10
"""
PYTORCH_ROWS = """set,dir,gpu,gpumem,torch,task,prec,ngpu,global_batch,throughput,max_mon_mem_mib,oom
results,A40,A40,1,1.9.0,SSD,AMP,1,10,50,,0
results,2xA40,A40,1,1.9.0,SSD,AMP,2,20,40,,0
results,2xA40,A40,1,1.9.0,ncf,FP32,2,20,40,,0
results,4xA40,A40,1,1.9.0,gnmt,FP32,4,40,5000,,0
results,other_A40,A40,1,1.9.0,gnmt,FP32,1,10,2500,,0
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "lambda").mkdir()
    for name, text in (("tensorflow", TENSORFLOW_ROWS), ("pytorch_train", PYTORCH_ROWS)):
        with gzip.open(tmp_path / f"lambda/{name}_throughput.csv.gz", "wt") as file:
            file.write(text)
    return tmp_path


def test_runs_are_paired_with_the_one_on_a_single_gpu(data: Path) -> None:
    found = {(run.network, run.devices): run for run in lambda_labs_scaling.read(data)}
    assert set(found) == {("resnet50", 4), ("SSD", 2), ("gnmt", 4)}
    resnet = found["resnet50", 4]
    assert (resnet.single_seconds, resnet.seconds) == pytest.approx((0.1, 0.2))


def test_ssd_of_older_containers_is_reported_for_one_worker(data: Path) -> None:
    ssd = next(run for run in lambda_labs_scaling.read(data) if run.network == "SSD")
    assert (ssd.single_seconds, ssd.seconds) == pytest.approx((0.2, 0.25))


def test_a_machine_without_a_single_run_takes_that_of_its_gpu(data: Path) -> None:
    gnmt = next(run for run in lambda_labs_scaling.read(data) if run.network == "gnmt")
    assert (gnmt.single_seconds, gnmt.seconds) == pytest.approx((500 / 2500, 2000 / 5000))
