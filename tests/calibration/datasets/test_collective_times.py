"""Readers of measured collectives, on files of a few rows."""

import csv
import gzip
from pathlib import Path

import pytest

from calibration.datasets import aiconfigurator, deepbench, sia, vtrain
from foretrain.prediction.collectives.costs import Verb


def write(file: Path, header: str, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wt", newline="") as out:
        csv.writer(out).writerows(line.split(",") for line in (header, *lines))


def test_messages_are_counted_in_elements_and_versions_have_one_vote_each(tmp_path: Path) -> None:
    write(
        tmp_path / aiconfigurator.NCCL_FILE,
        "system,nccl,op_name,nccl_dtype,num_gpus,message_size,latency_ms",
        "h200_sxm,1,all_reduce,half,8.0,512.0,1",
        "h200_sxm,2,all_reduce,half,8.0,512.0,2",
        "h200_sxm,3,all_reduce,half,8.0,512.0,9",
        "h200_sxm,3,all_reduce,half,8.0,512.0,9",
        "h200_sxm,3,all_reduce,half,8.0,512.0,9",
        "h200_sxm,3,all_reduce,int8,8.0,512.0,7",
    )
    (time,) = aiconfigurator.read_collectives(tmp_path)
    assert (time.verb, time.devices, time.bytes, time.seconds) == (Verb.ALL_REDUCE, 8, 1024, 2e-3)
    (whole,) = aiconfigurator.read_collectives(tmp_path, "int8")
    assert (whole.bytes, whole.sums) == (512, False)


def test_vtrain_is_in_microseconds(tmp_path: Path) -> None:
    write(tmp_path / vtrain.ALL_REDUCE_FILE, "device,gpus,bytes,time_us", "v100,3,1048576,70.5")
    (time,) = vtrain.read_all_reduces(tmp_path)
    assert (time.machine, time.topology, time.devices) == ("dgx-1v", "nvlink-mesh", 3)
    assert time.seconds == pytest.approx(70.5e-6)


def test_deepbench_rows_of_one_node_are_read_and_others_left_out(tmp_path: Path) -> None:
    columns = [f"c{index}" for index in range(11)]
    header = ",".join(["file", "sheet", "row", *columns])
    write(
        tmp_path / deepbench.FILE,
        header,
        "DeepBench_NV_1080Ti,s,1,All-Reduce,,Size # floats,cards,,,Mean,,,",
        "DeepBench_NV_1080Ti,s,2,,,100000,2,,,0.062,,12.8,NCCL",
        "DeepBench_NV_1080Ti,s,3,,,100000,16,2,,0.5,,12.8,NCCL",
        "DeepBench_NV_M40,s,4,,,100000,2,,,0.1,,7.2,NCCL",
        "DeepBench_NV_1080Ti,s,5,GEMM,,100000,2,,,0.062,,12.8,NCCL",
        "DeepBench_NV_1080Ti,s,6,,,100000,2,,,0.062,,12.8,NCCL",
    )
    (time,) = deepbench.read_all_reduces(tmp_path)
    assert (time.devices, time.bytes, time.seconds) == (2, 4e5, 0.062e-3)


def test_waiting_is_read_at_the_smallest_batch_of_models_that_wait_long(tmp_path: Path) -> None:
    write(
        tmp_path / sia.FILE,
        "model,cluster,table,placement,local_bsz,step_time,sync_time,num_nodes,num_replicas",
        "bert,aws,placements,2,8,1,0.02,,",
        "bert,aws,placements,2,4,1,0.05,,",
        "bert,aws,placements,4,4,1,0.15,,",
        "bert,aws,placements,11,4,1,0.9,,",
        "ncf,aws,placements,2,4,1,0.001,,",
        "ncf,aws,placements,4,4,1,0.5,,",
    )
    found = [(item.model, item.devices, item.seconds) for item in sia.read_waiting(tmp_path)]
    assert found == [("bert", 2, 0.05), ("bert", 4, 0.15)]
