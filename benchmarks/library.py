"""foretrain as a library in a loop: one model on other devices, at other batches and in other layouts.

A loop re-prices what changed: structures, listings and sizes belong to the graph, prices to graph and device.
"""

from __future__ import annotations

from itertools import product

from benchmarks.timing import benchmark
from foretrain import predict

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


@benchmark("1,000 predictions in a loop", target_seconds=2.0, runs=3)
def predict_thousand() -> None:
    """At least 500 in a second."""
    assert _predict_all(_DEVICES, advice=False) == 1000


@benchmark("100 predictions with advice", target_seconds=2.0, runs=3)
def predict_with_advice() -> None:
    """What would change each step, too."""
    assert _predict_all(_DEVICES[-2:], advice=True) == 100
