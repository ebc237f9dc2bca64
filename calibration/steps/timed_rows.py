"""Rows of public measurements as a user would give them to `calibrate`: configuration, measured, predicted.

A source is one set-up: a harness with its framework, its hosts and its cluster. The suite `own_timings` makes
most rows, from the cases of the transfer suite, and keeps all as a table. Here are three data sets of steps
on one GPU that are no case of that suite. Rows are a sample by a hash of what ran, so that no source and no
network outweighs the others. Predictions are those of the shipped operator models without any correction.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from calibration.datasets import gavel, ryujaehun, sia, sia_models
from foretrain.facts.devices import device
from foretrain.prediction.corrections.error_model import StepError, StepKey, StepTraits
from foretrain.prediction.corrections.timings import priced_error
from foretrain.prediction.cost_models import OperatorCostModel, step_estimate
from foretrain.prediction.spread import traits_of, with_spread
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.workload import Workload, graph_at
from foretrain.workloads.zoo.catalogue import BuildOptions

_MODEL = OperatorCostModel()


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A measured step and its prediction. `variant` is what else was chosen: phase, layout, strategy."""

    source: str
    model: str
    device: str
    precision: str
    variant: str
    batch: float
    devices: int
    measured: float
    predicted: float
    p10: float
    p90: float
    host: float
    network: float
    products: float
    convolutions: float
    attention: float
    memory_bound: float

    @property
    def error(self) -> StepError:
        """The row as the model of errors sees it."""
        traits = StepTraits(
            self.host, self.network, self.products, self.convolutions, self.attention, self.memory_bound
        )
        key = StepKey(self.model, self.device, self.precision, self.variant)
        return StepError(key, self.predicted, traits, math.log(self.measured / self.predicted))

    @property
    def data_set(self) -> str:
        """The data set of its source: `sia` of each of Sia's clusters."""
        return self.source.split()[0]


def timed_row(
    source: str,
    step: StepError,
    measured: float,
    p10: float,
    p90: float,
    batch: float = 1.0,
    devices: int = 1,
) -> TimedRow:
    """A row of a step with its prediction, and the interval of that."""
    key = step.key
    return TimedRow(
        source, key.model, key.device, key.precision, key.variant, batch, devices, measured,
        step.predicted_seconds, p10, p90, **asdict(step.traits),
    )  # fmt: skip


def _single(source: str, model: str, on: str, batch: float, measured: float, graph: Graph) -> TimedRow:
    """A step on one GPU."""
    priced = _MODEL.price(graph, device(on))
    step, alone = priced_error(model, device(on), priced), step_estimate(priced)
    share = alone.waiting_seconds / alone.seconds
    traits = traits_of(graph, priced, device(on), launch_share=share)
    bounds = with_spread(alone.estimate, priced, traits, device(on)).quantiles
    return timed_row(source, step, measured, bounds.p10, bounds.p90, batch)


def _hash(*parts: object) -> int:
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16)


def _sample(items: Iterable[object], most: int) -> list:  # type: ignore[type-arg]
    """At most `most` items, in an order fixed by their content alone."""
    return sorted(items, key=_hash)[:most]


def ryujaehun_rows(data: Path) -> Iterator[TimedRow]:
    """torchvision at batch 12: each host is a source."""
    steps = ryujaehun.read(data)
    chosen = set(_sample({step.model for step in steps}, 10))
    for step in steps:
        if step.model not in chosen:
            continue
        options = ResolvedOptions(precision=step.precision, optimizer=None, forward_only=step.forward_only)
        workload = Workload(read_model(step.model), BuildOptions(), options)
        yield _single(
            f"ryujaehun {step.host}", step.model, step.device_id, ryujaehun.BATCH, step.seconds,
            graph_at(workload, ryujaehun.BATCH),
        )  # fmt: skip


def sia_rows(data: Path) -> Iterator[TimedRow]:
    """Sia's models on one GPU of each cluster; each cluster is a source."""
    on = {"aws-4xt4": "t4", "8xrtx2080ti": "rtx2080ti", "azure-8xv100": "v100-sxm2-32gb"}
    seen: dict[tuple[str, str, int], list[float]] = {}
    for row in sia.read(data):
        if row.devices == 1:
            seen.setdefault((row.cluster, row.model, row.batch), []).append(row.step_seconds)
    by_model: dict[tuple[str, str], list[int]] = {}
    for cluster, model, batch in seen:
        by_model.setdefault((cluster, model), []).append(batch)
    for (cluster, model), batches in by_model.items():
        for batch in _sample(batches, 6):
            times = sorted(seen[cluster, model, batch])
            yield _single(
                f"sia {cluster}", model, on[cluster], batch, times[len(times) // 2],
                sia_models.graph(model, batch),
            )  # fmt: skip


def gavel_rows(data: Path) -> Iterator[TimedRow]:
    """Gavel's image classifiers on one GPU of three kinds: one source."""
    on = {"k80": "k80", "p100": "p100-pcie", "v100": "v100-sxm2-16gb"}
    for step in gavel.read(data):
        if step.devices == 1 and step.together and step.model.startswith("resnet"):
            if step.model == "resnet18":
                graph = sia_models.graph("resnet18", step.batch)
            else:
                options = ResolvedOptions(precision="fp32", optimizer="momentum")
                graph = graph_at(Workload(read_model("resnet50"), BuildOptions(), options), step.batch)
            yield _single("gavel", step.model, on[step.device], step.batch, step.step_seconds, graph)


READERS: Mapping[str, Callable[[Path], Iterator[TimedRow]]] = {
    "sia": sia_rows,
    "gavel": gavel_rows,
    "ryujaehun": ryujaehun_rows,
}


def write_rows(file: Path, listed: Sequence[TimedRow]) -> None:
    """Keep rows as CSV."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, [each.name for each in fields(TimedRow)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in listed)


def read_rows(file: Path) -> list[TimedRow]:
    """Rows from a file that `write_rows` wrote."""
    kinds = {each.name: {"str": str, "int": int, "float": float}[str(each.type)] for each in fields(TimedRow)}
    with file.open(encoding="utf-8", newline="") as stream:
        return [
            TimedRow(**{name: kinds[name](value) for name, value in row.items()})
            for row in csv.DictReader(stream)
        ]
