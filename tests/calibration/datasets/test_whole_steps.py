"""PROFET's and Lambda's readers: hand-checked rows of small files, and what is left out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from calibration.datasets import lambda_labs, profet
from foretrain.workloads.workload import trace_workload

_PROFET = "exp_name,instance_name,dataset,model,optimizer,batchsize,epoch_latency,batch_latency\n"
_LAMBDA = "set,dir,gpu,gpumem,torch,task,prec,ngpu,global_batch,throughput,max_mon_mem_mib,oom\n"


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(text.encode()))


def test_repeats_of_profet_become_their_median(tmp_path: Path) -> None:
    rows = "".join(f"e{t},p2.xlarge,32dataset,LeNet5,SGD,16,1,{t}\n" for t in (0.3, 0.1, 0.2))
    _write(tmp_path / profet.FILE, _PROFET + rows)
    (step,) = profet.read(tmp_path)
    assert (step.model, step.image_size, step.batch, step.device_id) == ("LeNet5", 32, 16, "k80")
    assert step.seconds == 0.2


@pytest.mark.parametrize(
    ("model", "size", "parameters"),
    [
        ("LeNet5", 32, 62_006),
        ("VGG16", 224, 138_357_544),
        ("VGG19", 224, 143_667_240),
        ("MobileNetV2", 224, 3_504_872),
        ("CIFAR10_CNN", 32, 1_250_858),
    ],
)
def test_profets_networks_have_the_parameters_keras_counts(model: str, size: int, parameters: int) -> None:
    """VGG and MobileNetV2 as Keras' own applications; the CIFAR-10 CNN as Keras' example; LeNet-5 by hand."""
    graph = trace_workload(profet.ProfetStep(model, size, 2, "t4", 1.0).workload)
    assert graph.trainable_parameters == parameters


def _row(**changes: str) -> str:
    row = {
        "set": "results", "dir": "3090", "gpu": "GeForce_RTX_3090", "gpumem": "", "torch": "1.7.0a0+7036e91",
        "task": "SSD", "prec": "FP32", "ngpu": "", "global_batch": "", "throughput": "50", "mem": "",
        "oom": "0",
    } | changes  # fmt: skip
    return ",".join(row.values()) + "\n"


def test_lambdas_runs_get_the_published_batch_or_one_by_memory(tmp_path: Path) -> None:
    rows = [
        _row(),
        _row(throughput="100"),
        _row(dir="A5000", gpu="RTX_A5000"),
        _row(dir="v1", ngpu="1.0", global_batch="96.0", prec="AMP", torch="1.13.0a0+d0d6b1f"),
        _row(dir="4x3090"),
        _row(dir="2080MaxQ", gpu="GeForce_RTX_2080_with_Max-Q_Design"),
        _row(throughput=""),
        _row(dir="3090_sonantic_v1"),
    ]
    _write(tmp_path / lambda_labs.FILE, _LAMBDA + "".join(rows))
    found = lambda_labs.read(tmp_path)
    first, guessed, stated = found.runs
    assert first.batch == 80
    assert first.batch_known
    assert first.seconds == pytest.approx(1 / 75)
    assert guessed.device_id == "rtxa5000"
    assert guessed.batch == pytest.approx(80)
    assert not guessed.batch_known
    assert (stated.precision, stated.batch, stated.software) == ("fp16", 96, "1.13")
    assert found.left_out == {
        "several GPUs": 1,
        "laptop GPU without a sheet": 1,
        "did not finish": 1,
        "another container": 1,
    }
