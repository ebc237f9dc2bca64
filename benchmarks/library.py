"""foretrain as a library in a loop: one model on other devices, at other batches and in other layouts.

A loop re-prices what changed: structures, listings and sizes belong to the graph, prices to graph and device.
"""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import product
from pathlib import Path

from benchmarks.timing import Benchmark, Failed, Target, benchmark, register
from foretrain import predict

ROOT = Path(__file__).resolve().parent.parent
_DEVICES = (
    "t4", "v100-sxm2-16gb", "v100-sxm2-32gb", "a10", "a100-pcie-40gb", "a100-sxm-40gb", "a100-sxm-80gb",
    "h100-pcie", "h100-sxm", "l4", "l40s", "p100-pcie-16gb", "rtx2080ti", "rtx3080", "rtx3090",
    "rtx4080", "rtx4090", "a40", "rtxa6000", "gtx1080ti",
)  # fmt: skip
_BATCHES = tuple(range(8, 208, 8))
_LAYOUTS = ("", ":4")


def _predict_all(devices: tuple[str, ...], advice: bool) -> int:
    """Predict each device in each layout at each batch; how many predictions that are."""
    cases = [*product(_BATCHES, devices, _LAYOUTS)]  # the graphs of a batch stay in memory for its devices
    for batch, name, layout in cases:
        predict("resnet50", on=name + layout, batch=batch, precision="fp32", advice=advice)
    return len(cases)


@benchmark("1,000 predictions in a loop, again", target_seconds=2.0, runs=3)
def predict_thousand() -> None:
    """At least 500 in a second, where graphs and their memory are known already."""
    assert _predict_all(_DEVICES, advice=False) == 1000


def first_pass_seconds() -> float:
    """The same in a fresh process, after a first prediction that imports what all of them use."""
    predict("resnet50", on=_DEVICES[0], batch=_BATCHES[0], precision="fp32", advice=False)
    start = time.perf_counter()
    predict_thousand()
    return time.perf_counter() - start


def _run_first_pass() -> float:
    code = "from benchmarks.library import first_pass_seconds; print(first_pass_seconds())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    if run.returncode:
        raise Failed(run.stderr.strip().splitlines()[-1])
    return float(run.stdout)


register(
    Benchmark(
        "1,000 predictions in a loop, first pass",
        Target(2.0),
        3,
        _run_first_pass,
        unit="s of the loop",
        warms_up=False,
    )
)


@benchmark("100 predictions with advice", target_seconds=2.0, runs=3)
def predict_with_advice() -> None:
    """What would change each step, too."""
    assert _predict_all(_DEVICES[-2:], advice=True) == 100
