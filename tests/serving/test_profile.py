"""`foretrain profile`: a model run here, and a trace of a GPU, beside their predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.support.kineto_traces import KERNELS, gpu_trace

Run = Callable[..., CompletedProcess[str]]
MODEL = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 4)), torch.ones(2, 8), lambda out: out.sum()
"""


@pytest.fixture(name="model")
def model_of_one_layer(tmp_path: Path) -> str:
    """A model with one linear layer called 0."""
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    return f"{file}:build"


@pytest.mark.usefixtures("quick_measurement")
def test_a_zoo_model_is_run_here_operator_by_operator_and_layer_by_layer(run_here: Run) -> None:
    run = run_here("profile", "mnist-cnn", "--here", "--batch", "2", "--seconds", "0.2", "--json")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    kinds = {(row["phase"], row["kind"]) for row in answer["operators"]}
    assert {("forward", "convolution"), ("backward", "convolution"), ("forward", "linear")} <= kinds
    assert ("optimizer", "optimizer") in kinds
    assert answer["device"] == "here"
    assert answer["batch"] == 2
    assert answer["step_seconds"] > 0
    assert answer["run"]["profiled_step_seconds"] > 0
    parts = sum(row["measured_seconds"] for row in answer["operators"])
    assert 0 < parts <= 1.5 * answer["traced_step_seconds"]
    layers = {row["type"] for row in answer["layers"] if row["forward"]["measured_seconds"] > 0}
    assert {"Conv2d", "Linear"} <= layers
    assert all(row["backward"]["measured_seconds"] > 0 for row in answer["layers"] if row["type"] == "Conv2d")
    assert any("calibrate --here" in note for note in answer["notes"])  # no prediction, and why
    assert answer["predicted_seconds"] is None


@pytest.mark.usefixtures("quick_measurement")
def test_the_text_names_phases_layers_and_the_overhead_of_the_profiler(run_here: Run, model: str) -> None:
    run = run_here("profile", model, "--here", "--seconds", "0.1", "--layers")
    assert run.returncode == 0, run.stderr
    assert "measured" in run.stdout.splitlines()[0]
    assert "the profiler lengthens a step by" in run.stdout
    assert "outside operators" in run.stdout
    assert "Linear" in run.stdout


def test_a_trace_of_a_gpu_is_compared_with_the_prediction(run_here: Run, model: str, tmp_path: Path) -> None:
    trace = gpu_trace(tmp_path / "trace.json.gz")
    run = run_here("profile", model, "--trace", str(trace), "--on", "rtx3090", "--optimizer", "sgd", "--json")
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    rows = {(row["phase"], row["kind"]): row for row in answer["operators"]}
    assert rows["forward", "linear"]["measured_seconds"] == pytest.approx(KERNELS["forward"] * 1e-6)
    assert rows["backward", "linear"]["measured_seconds"] == pytest.approx(KERNELS["backward"] * 1e-6)
    linear = rows["forward", "linear"]
    assert linear["ratio"] == pytest.approx(linear["measured_seconds"] / linear["predicted_seconds"])
    assert answer["ratio"] == pytest.approx(answer["step_seconds"] / answer["predicted_seconds"])
    assert answer["run"] is None


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "either --here"),
        (("--here", "--trace", "t.json"), "either --here"),
        (("--here", "--on", "t4"), "--here is the present device"),
        (("--trace", "t.json"), "--trace needs --on"),
        (("--here", "--compile"), "without compile"),
        (("--trace", "absent.json", "--on", "t44"), "no device 't44'; did you mean t4"),
    ],
)
def test_requests_that_make_no_sense(
    run_here: Run, model: str, arguments: tuple[str, ...], sentence: str
) -> None:
    run = run_here("profile", model, *arguments)
    assert run.returncode == 2
    assert sentence in run.stderr


def test_a_trace_that_does_not_exist_is_missing_data(run_here: Run, model: str) -> None:
    run = run_here("profile", model, "--trace", "absent.json", "--on", "t4")
    assert run.returncode == 3
    assert "there is no trace file 'absent.json'; export it with torch.profiler" in run.stderr


def test_a_trace_without_kernels_is_not_of_a_gpu(run_here: Run, model: str, tmp_path: Path) -> None:
    file = gpu_trace(tmp_path / "trace.json")
    content = json.loads(file.read_text())
    content["traceEvents"] = [event for event in content["traceEvents"] if event.get("cat") != "kernel"]
    file.write_text(json.dumps(content))
    run = run_here("profile", model, "--trace", str(file), "--on", "rtx3090")
    assert run.returncode == 2
    assert "has no GPU kernels" in run.stderr
