"""Pricing stored graphs, in a process that never imports torch. Each graph is priced as if just loaded."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from benchmarks.timing import benchmark
from foretrain.facts.devices import device
from foretrain.prediction.operators import (
    attention,
    convolution,
    matrix,
    mixed_precision,
    recurrent,
    streaming,
)
from foretrain.prediction.operators.pricing import operator_models, price
from foretrain.workloads.cache import load
from foretrain.workloads.graph import Graph
from foretrain.workloads.rules import operators

_TRACE = """
import sys
from pathlib import Path
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of
from foretrain.workloads.cache import dump
from foretrain.workloads.workload import graph_of
graph = graph_of(workload_of(WorkloadRequest(sys.argv[1], batch=int(sys.argv[2]), precision="bf16")))
Path(sys.argv[3]).write_bytes(dump(graph))
"""
_CALIBRATIONS = (
    attention.calibration, convolution.calibration, matrix.calibration, recurrent.calibration,
    streaming.calibration, mixed_precision.calibration,
)  # fmt: skip


@cache
def _stored(model: str, batch: int) -> bytes:
    """The file of a graph, traced by another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph"
        arguments = [sys.executable, "-c", _TRACE, model, str(batch), str(file)]
        subprocess.run(arguments, check=True, env={**os.environ, "FORETRAIN_HOME": folder})
        return file.read_bytes()


_fresh: list[Graph] = []


def _load(model: str, batch: int) -> None:
    graph = load(_stored(model, batch))
    assert isinstance(graph, Graph)
    _fresh[:] = [graph]
    gc.collect()  # what loading left to clean up is loading's, not pricing's


def _price() -> None:
    assert "torch" not in sys.modules or "benchmarks.tracing" in sys.modules
    target = device("a100-sxm-80gb")
    price(operators(_fresh[0]), target, operator_models(target))


def _forget_calibrations() -> None:
    device("a100-sxm-80gb")
    for calibration in _CALIBRATIONS:
        calibration.cache_clear()


@benchmark("load all calibrations", target_seconds=0.05, prepare=_forget_calibrations)
def load_calibrations() -> None:
    """Every file the operator models read."""
    for calibration in _CALIBRATIONS:
        calibration()


@benchmark("price resnet50", target_seconds=0.01, prepare=lambda: _load("resnet50", 32))
def price_resnet50() -> None:
    """From calls to operators to seconds."""
    _price()


@benchmark("price llama2-7b", target_seconds=0.03, prepare=lambda: _load("llama2-7b", 1))
def price_llama() -> None:
    """The same for seven thousand calls."""
    _price()
