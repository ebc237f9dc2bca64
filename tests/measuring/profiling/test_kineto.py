"""Traces of torch.profiler: real ones of a CPU, hand-made ones of a GPU, and files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from tests.support.kineto_traces import KERNELS, gpu_trace
from torch.profiler import ProfilerActivity, profile, record_function

from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.measuring.profiling.attribution import measured_operators
from foretrain.measuring.profiling.kineto import read_trace
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import Kind
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import graph_of, workload_of

MICROSECOND = 1e-6
MODEL = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 4)), torch.ones(2, 8), lambda out: out.sum()
"""


@pytest.fixture(name="graph")
def graph_of_a_linear_layer(tmp_path: Path) -> Graph:
    """A model with one linear layer called 0."""
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return graph_of(workload_of(WorkloadRequest(f"{file}:build", optimizer="sgd")))


@pytest.mark.parametrize("links_by_correlation", [False, True])
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_kernels_count_for_the_operator_that_launched_them(
    tmp_path: Path, graph: Graph, name: str, links_by_correlation: bool
) -> None:
    trace = read_trace(gpu_trace(tmp_path / name, links_by_correlation=links_by_correlation))
    measured = measured_operators(trace, graph)
    assert trace.device_name == "NVIDIA GeForce RTX 3090"
    assert (measured.steps, measured.dropped_steps, measured.unlinked_kernels) == (3, 1, 0)
    assert measured.seconds == {
        (Phase.FORWARD, Kind.LINEAR, "0"): pytest.approx(KERNELS["forward"] * MICROSECOND),
        (Phase.BACKWARD, Kind.LINEAR, "0"): pytest.approx(KERNELS["backward"] * MICROSECOND),
        (Phase.OPTIMIZER, Kind.OPTIMIZER, ""): pytest.approx(KERNELS["optimizer"] * MICROSECOND),
    }
    busy = sum(KERNELS.values()) * MICROSECOND
    assert measured.step_seconds == pytest.approx(busy + measured.idle_seconds)


def test_a_real_trace_of_a_cpu_has_the_kinds_and_layers_of_the_graph(tmp_path: Path, graph: Graph) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with record_function("0"):
                out = module[0](torch.ones(2, 8))
            out.sum().backward()
            optimizer.step()
            profiler.step()
    file = tmp_path / "cpu.json"
    profiler.export_chrome_trace(str(file))
    measured = measured_operators(read_trace(file), graph)
    assert not read_trace(file).has_kernels
    assert measured.seconds[Phase.FORWARD, Kind.LINEAR, "0"] > 0
    assert measured.seconds[Phase.BACKWARD, Kind.LINEAR, "0"] > 0
    assert measured.seconds[Phase.OPTIMIZER, Kind.OPTIMIZER, ""] > 0
    assert sum(measured.seconds.values()) <= measured.step_seconds * 1.5


def test_modules_of_a_trace_with_stacks_are_layers_in_the_order_of_their_first_call(
    tmp_path: Path, graph: Graph
) -> None:
    file = gpu_trace(tmp_path / "trace.json")
    content = json.loads(file.read_text())
    for event in content["traceEvents"]:
        if event.get("cat") == "user_annotation" and event["name"] == "0":
            event |= {"cat": "python_function", "name": "nn.Module: Linear_0"}
    file.write_text(json.dumps(content))
    measured = measured_operators(read_trace(file), graph)
    assert (Phase.FORWARD, Kind.LINEAR, "0") in measured.seconds


def test_without_annotated_steps_an_update_ends_a_step(tmp_path: Path, graph: Graph) -> None:
    file = gpu_trace(tmp_path / "trace.json", steps=3)
    content = json.loads(file.read_text())
    content["traceEvents"] = [
        event for event in content["traceEvents"] if not event["name"].startswith("ProfilerStep")
    ]
    file.write_text(json.dumps(content))
    assert measured_operators(read_trace(file), graph).steps == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not JSON or is truncated"),
        (b'{"traceEvents": [', "is not JSON or is truncated"),
        (b"\x1f\x8b\x08 not gzip", "damaged gzip file"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-9], "damaged gzip file"),
        (b'{"events": []}', "has no list traceEvents"),
        (b'"text"', "has no list traceEvents"),
        (b'{"traceEvents": [{"ph": "X", "cat": "blink", "name": "paint", "ts": 1, "dur": 2}]}',
         "has no operators (events of category cpu_op) of torch.profiler; its categories are blink"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}',
         "profile whole training steps"),
        (b'[{"ph": "X", "cat": "cpu_op", "ts": "now", "dur": "long"}]', "has no operators"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_trace_says_what_is_missing(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(content)
    with pytest.raises(InvalidData) as error:
        read_trace(file)
    assert sentence in str(error.value)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no trace file"):
        read_trace(tmp_path / "absent.json")
    with pytest.raises(InvalidRequest, match="is a folder"):
        read_trace(tmp_path)
