"""Profiles of networks on this machine for the suite `learn`: `python -m validation.measure_layers`.

Runs each network under torch.profiler on one thread and keeps the shortest time of every operator over all
steps, since other work on a shared machine only ever lengthens it. Writes `data/layers/NAME.json`.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from foretrain.measuring.profiling.attribution import measured_operators
from foretrain.measuring.profiling.comparison import compare
from foretrain.measuring.profiling.kineto import read_trace
from foretrain.measuring.profiling.running import profile_here
from foretrain.facts.devices import device
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.workloads.requests import WorkloadRequest, workload_of
from foretrain.workloads.workload import graph_of

NETWORKS = ("alexnet", "googlenet-no-aux", "vgg11", "resnet18", "resnet34")
BATCH, IMAGE_SIZE, SECONDS = 1, 64, 40.0
FOLDER = Path(__file__).parent / "data" / "layers"
_ANY_DEVICE = "t4"
"""A profile names a device whose prediction stands beside it; only the measured times are kept."""


def profile(name: str) -> dict[str, object]:
    """The layers of one network."""
    workload = workload_of(
        WorkloadRequest(model=name, batch=BATCH, image_size=IMAGE_SIZE, no_optimizer=True)
    )
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        run = profile_here(workload, trace, SECONDS)
        graph = graph_of(workload)
        measured = measured_operators(read_trace(trace), graph, min)
    compared = compare(name, graph, device(_ANY_DEVICE), OperatorCostModel(RooflineModel.name), measured, run)
    works = [
        {
            "layer": each.layer, "phase": each.phase.value, "kind": each.kind.value, "works": each.works,
            "operations": each.operations, "measured_seconds": each.measured_seconds,
            "predicted_seconds": None,
        }
        for each in compared.works
    ]  # fmt: skip
    total = sum(each.measured_seconds for each in compared.works) + measured.idle_seconds
    return {
        "model": name, "device": "here", "batch": BATCH, "image_size": IMAGE_SIZE, "steps": measured.steps,
        "torch": run.torch_version, "threads": run.threads, "other_cores_busy": round(run.other_cores, 2),
        "traced_step_seconds": total, "works": works,
    }  # fmt: skip


def main() -> None:
    """All networks."""
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in NETWORKS:
        text = json.dumps(profile(name), indent=0)
        (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
