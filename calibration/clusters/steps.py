"""Steps on Sia's clusters in columns: what devices compute, launch and reduce, and what was measured.

Operators are priced as in recent software, whose half-precision convolutions are faster than those in the
containers of 2020. `mixed_precision_factor` takes the difference from ResNet-50 in Lambda's PyTorch 1.4
containers, on GPUs that none of the clusters has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from calibration.datasets import lambda_labs, sia_models
from calibration.datasets.sia import CLUSTERS, SiaStep
from foretrain.facts.devices import device
from foretrain.prediction.cost_models import OperatorCostModel, call_times
from foretrain.prediction.operators.pricing import Flags, Floats
from foretrain.prediction.strategies.program import fill_buckets, gradients, optimizer_start

Names = NDArray[np.str_]
Counts = NDArray[np.int64]

DEVICES: Mapping[str, str] = {
    CLUSTERS["aws"]: "t4",
    CLUSTERS["rtx"]: "rtx2080ti",
    CLUSTERS["azure"]: "v100-sxm2-32gb",
}
_SOFTWARE, _TASK, _PRECISION = "1.4", "resnet50", "fp16"


@dataclass(frozen=True, eq=False)
class ClusterSteps:
    """One row for each step; `fullest` is the number of devices on the node that has most.

    `bucket_bytes` and `bucket_leads` have one column for each bucket of gradients: its size, 0 where there is
    none, and how long before the end of the backward pass it is ready.
    """

    models: Names
    clusters: Names
    batches: Counts
    devices: Counts
    fullest: Counts
    nodes: Counts
    device_seconds: Floats
    launches: Floats
    bucket_bytes: Floats
    bucket_leads: Floats
    step_seconds: Floats
    sync_seconds: Floats

    def __len__(self) -> int:
        return len(self.models)

    def where(self, chosen: Flags | Counts) -> ClusterSteps:
        """Some of the rows."""
        return ClusterSteps(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


@dataclass(frozen=True, eq=False)
class _Work:
    device_seconds: float
    gradients: int
    buckets: tuple[tuple[int, float], ...]

    def longer(self, factor: float) -> _Work:
        """The same work with all device time by a factor."""
        leads = tuple((size, lead * factor) for size, lead in self.buckets)
        return _Work(self.device_seconds * factor, self.gradients, leads)


@cache
def _work(model: str, batch: int, device_id: str, frames: int | None) -> _Work:
    graph = sia_models.graph(model, batch, frames)
    times = call_times(OperatorCostModel().price(graph, device(device_id))).device
    ends = np.cumsum(times)
    last = ends[optimizer_start(graph) - 1]
    ready = gradients(graph)
    buckets = tuple((bucket.bytes, float(last - ends[bucket.ready])) for bucket in fill_buckets(ready))
    return _Work(float(ends[-1]), len(ready), buckets)


def cluster_steps(rows: Sequence[SiaStep], mixed_factor: float = 1.0) -> ClusterSteps:
    """Sia's rows with the work of each; `mixed_factor` is how much longer mixed precision takes than priced.

    Utterances differ in length, and all workers wait for the one that has the longest.
    """
    works = []
    for row in rows:
        frames = sia_models.frames(row.batch * row.devices) if row.model == "deepspeech2" else None
        work = _work(row.model, row.batch, DEVICES[row.cluster], frames)
        works.append(work.longer(mixed_factor) if row.model in sia_models.MIXED else work)
    most = max(len(work.buckets) for work in works)
    table = np.zeros((len(rows), most, 2))
    for index, work in enumerate(works):
        table[index, : len(work.buckets)] = work.buckets
    launches = [
        work.gradients * sia_models.launches_per_gradient(row.model, row.devices)
        for row, work in zip(rows, works, strict=True)
    ]
    return ClusterSteps(
        models=np.array([row.model for row in rows], str),
        clusters=np.array([row.cluster for row in rows], str),
        batches=np.array([row.batch for row in rows], np.int64),
        devices=np.array([row.devices for row in rows], np.int64),
        fullest=np.array([_fullest(row) for row in rows], np.int64),
        nodes=np.array([row.nodes for row in rows], np.int64),
        device_seconds=np.array([work.device_seconds for work in works]),
        launches=np.array(launches, float),
        bucket_bytes=table[:, :, 0],
        bucket_leads=table[:, :, 1],
        step_seconds=np.array([row.step_seconds for row in rows]),
        sync_seconds=np.array([row.sync_seconds for row in rows]),
    )


def _fullest(row: SiaStep) -> int:
    return max(row.devices_per_node) if row.devices_per_node else -(-row.devices // row.nodes)


def mixed_precision_factor(data: Path, without: frozenset[str] = frozenset()) -> float:
    """The median of measured over priced, of all GPUs but some."""
    ratios = []
    for run in lambda_labs.read(data).runs:
        if (run.software, run.task, run.precision) != (_SOFTWARE, _TASK, _PRECISION):
            continue
        if run.device_id in without:
            continue
        target = device(run.device_id)
        step = lambda_labs.graph(run, target)
        priced = float(OperatorCostModel().price(step, target).priced.seconds.sum()) / step.samples
        ratios.append(run.seconds / priced)
    return median(ratios)
