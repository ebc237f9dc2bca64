"""Steps on many devices, with graphs that are stored already."""

from __future__ import annotations

import gc
import os
import tempfile
from functools import cache

from benchmarks.timing import benchmark
from foretrain.facts.hardware import hardware
from foretrain.prediction.cost_models import OperatorCostModel
from foretrain.prediction.options import InputOptions, Parallelism
from foretrain.prediction.scenario import StepConfiguration, StepContext, evaluate, step_context
from foretrain.prediction.search.search import Ranking, search
from foretrain.prediction.strategies.strategy import layout_of
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import workload_of

_GLOBAL_BATCH = 1024


@cache
def _own_home() -> str:
    """One cache of graphs for all benchmarks of this file, away from the user's own."""
    return tempfile.mkdtemp(prefix="foretrain-bench-")


@cache
def _context(model: str, on: str, seq_len: int) -> StepContext:
    os.environ["FORETRAIN_HOME"] = _own_home()
    workload = workload_of(WorkloadRequest(model, batch=1, seq_len=seq_len, precision="bf16"))
    return step_context(workload, hardware(on), Parallelism(), OperatorCostModel(), InputOptions())


def _llama() -> StepContext:
    return _context("llama3-70b", "h100-sxm:8x64", 4096)


def _gpt2_large() -> StepContext:
    return _context("gpt2-large", "a100-sxm-80gb:8", 1024)


def _search_llama() -> None:
    assert isinstance(search(_llama(), _GLOBAL_BATCH), Ranking)


def _prepare_llama() -> None:
    """Trace once; nothing of a search but the graphs in files is kept for the next."""
    os.environ["FORETRAIN_HOME"] = _own_home()
    _traced()
    gc.collect()


@cache
def _traced() -> None:
    _search_llama()


@benchmark("auto: llama3-70b, 512 GPUs", target_seconds=5.0, runs=3, prepare=_prepare_llama)
def search_llama() -> None:
    """`--strategy auto`: hundreds of layouts sketched, the best predicted in full."""
    _search_llama()


@benchmark("spread gpt2-large, 8 GPUs", target_seconds=1.0, runs=5, prepare=_gpt2_large)
def spread_gpt2_large() -> None:
    """tp=2,pp=2,dp=2 in full: divided, priced, cut into stages, composed, and its memory."""
    os.environ["FORETRAIN_HOME"] = _own_home()
    context = _gpt2_large()
    evaluate(context, StepConfiguration(layout_of("tp=2,pp=2,dp=2", 8, 8), 8, 8)).memory.bytes  # noqa: B018
