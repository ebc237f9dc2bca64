"""Tracing, re-deriving and loading graphs, in a process that has already imported torch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache

from benchmarks.timing import benchmark
from foretrain.workloads import cache as stored
from foretrain.workloads.family import Family
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.rules import operators
from foretrain.workloads.workload import Workload, record_family, trace_workload, workload_of


@cache
def _own_home() -> None:
    """Keep what the benchmarks trace away from the user's own cache."""
    os.environ["FORETRAIN_HOME"] = tempfile.mkdtemp(prefix="foretrain-bench-")


@cache
def _workload(model: str, batch: int) -> Workload:
    _own_home()
    return workload_of(WorkloadRequest(model, batch=batch, precision="bf16"))


@cache
def _gpt2() -> Family:
    recorded = record_family(_workload("gpt2", 4))
    assert recorded is not None
    operators(recorded.graph)
    return recorded


@cache
def _stored_resnet50() -> str:
    entry = stored.key(benchmark="resnet50")
    stored.keep(entry, trace_workload(_workload("resnet50", 32)))
    return entry


@benchmark("import torch (reported apart)", target_seconds=10.0, runs=3)
def import_torch() -> None:
    """What the first trace of a process pays before it starts."""
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


@benchmark("trace resnet50", target_seconds=1.0, runs=5, prepare=lambda: _workload("resnet50", 32))
def trace_resnet50() -> None:
    """One training step, from building the model to the finished graph."""
    trace_workload(_workload("resnet50", 32))


@benchmark("trace llama2-7b", target_seconds=3.0, runs=3, prepare=lambda: _workload("llama2-7b", 1))
def trace_llama() -> None:
    """The same for seven thousand calls."""
    trace_workload(_workload("llama2-7b", 1))


@benchmark("re-derive gpt2 at another batch size", target_seconds=0.02, prepare=_gpt2)
def rederive_gpt2() -> None:
    """The graph and its operators at a batch size that was never traced."""
    operators(_gpt2().at({"batch": 24}))


@benchmark("load resnet50 from the cache", target_seconds=0.05, prepare=_stored_resnet50)
def load_resnet50() -> None:
    """From file to graph."""
    assert stored.find(_stored_resnet50()) is not None
