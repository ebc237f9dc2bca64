"""Rows of public measurements as a user would give them to `calibrate`: configuration, measured, predicted.

A source is one set-up: a harness with its framework, its hosts and its cluster. Rows are a sample of each
data set, by a hash of what ran, so that no source and no network outweighs the others. Predictions are those
of the shipped operator models without any correction by timings.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

from calibration.datasets import (
    gavel,
    lambda_labs,
    neusight,
    profet,
    ryujaehun,
    sia,
    sia_models,
    timm_benchmark,
    ultrascale,
    vtrain,
)
from calibration.datasets.measurements import rows
from calibration.datasets.timm_models import families, sampled
from calibration.datasets.transformer_graphs import Transformer
from calibration.datasets.transformer_graphs import graph_at as transformer_graph
from foretrain.estimates import Quantiles
from foretrain.facts.devices import device
from foretrain.facts.hardware import hardware
from foretrain.prediction.collectives import network_of
from foretrain.prediction.cost_models.error_model import StepTraits, step_traits
from foretrain.prediction.cost_models.priced_step import step_estimate
from foretrain.prediction.cost_models.step_models import OperatorCostModel
from foretrain.prediction.step.parallel import Environment, parallel_step
from foretrain.prediction.strategies.layout import Layout
from foretrain.workloads.graph import Graph
from foretrain.workloads.options import StepOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.workload import Workload, graph_at
from foretrain.workloads.zoo.catalogue import BuildOptions

GRAPHS = Path(__file__).parents[2] / "build" / "timm_graphs"
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
    def traits(self) -> StepTraits:
        """What the step spends its time on."""
        return StepTraits(
            self.host, self.network, self.products, self.convolutions, self.attention, self.memory_bound
        )


def _row(
    key: tuple[str, str, str, str, str],
    batch: float,
    devices: int,
    measured: float,
    bounds: Quantiles,
    traits: StepTraits,
) -> TimedRow:
    source, model, on, precision, variant = key
    return TimedRow(
        source, model, on, precision, variant, batch, devices, measured, bounds.p50, bounds.p10, bounds.p90,
        **asdict(traits),
    )  # fmt: skip


def _single(
    source: str,
    model: str,
    on: str,
    precision: str,
    variant: str,
    batch: float,
    measured: float,
    graph: Graph,
) -> TimedRow:
    """A step on one GPU."""
    priced = _MODEL.priced(graph, device(on))
    bounds = step_estimate(priced).estimate.quantiles
    key = source, model, on, precision, variant
    return _row(key, batch, 1, measured, bounds, step_traits(priced))


def _hash(*parts: object) -> int:
    return int(hashlib.sha256(repr(parts).encode()).hexdigest()[:12], 16)


def _sample(items: Iterable[object], most: int) -> list:  # type: ignore[type-arg]
    """At most `most` items, in an order fixed by their content alone."""
    return sorted(items, key=_hash)[:most]


def lambda_rows(data: Path) -> Iterator[TimedRow]:
    """Lambda's tasks with a known graph, all GPUs, by generation of containers."""
    for run in lambda_labs.read(data).runs:
        if run.task not in lambda_labs.TASKS:
            continue
        graph = lambda_labs.graph(run, device(run.device_id))
        precision = str(graph.settings["precision"])
        yield _single(
            "lambda", run.task, run.device_id, precision, run.software, graph.samples,
            run.seconds * graph.samples, graph,
        )  # fmt: skip


def timm_rows(data: Path) -> Iterator[TimedRow]:
    """timm's training steps on an RTX 3090 and forward passes on two GPUs, one model of each family."""
    training, forward = timm_benchmark.training(data), timm_benchmark.inference(data)
    chosen = set(_sample(sampled((step.wanted.model for step in training), 1), 32))
    steps = [step for step in (*training, *forward) if step.wanted.model in chosen]
    known = dict(families(dict.fromkeys(step.wanted for step in steps), GRAPHS))
    for step in steps:
        if step.wanted not in known:
            continue
        what = "forward" if step.wanted.forward_only else "training"
        source = f"timm {what}" + (f" {step.device_id}" if step.wanted.forward_only else "")
        yield _single(
            source, step.wanted.model, step.device_id, "fp16",
            "channels-last" if step.wanted.channels_last else "plain", step.batch, step.seconds,
            known[step.wanted].at({"batch": step.batch}),
        )  # fmt: skip


def profet_rows(data: Path) -> Iterator[TimedRow]:
    """PROFET's Keras steps: each instance is a source."""
    steps = [step for step in profet.read(data) if step.batch in (16, 64) and step.image_size in (32, 128)]
    for step in steps:
        yield _single(
            f"profet {step.device_id}", f"{step.model} at {step.image_size}", step.device_id, "fp32",
            "training", step.batch, step.seconds, graph_at(step.workload, step.batch),
        )  # fmt: skip


def ryujaehun_rows(data: Path) -> Iterator[TimedRow]:
    """torchvision at batch 12: each host is a source."""
    steps = ryujaehun.read(data)
    chosen = set(_sample({step.model for step in steps}, 10))
    for step in steps:
        if step.model not in chosen:
            continue
        options = StepOptions(precision=step.precision, optimizer=None, forward_only=step.forward_only)
        workload = Workload(read_model(step.model), BuildOptions(), options)
        yield _single(
            f"ryujaehun {step.host}", step.model, step.device_id, step.precision,
            "forward" if step.forward_only else "training", ryujaehun.BATCH, step.seconds,
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
            precision = str(sia_models.WORKLOADS[model].options.precision)
            yield _single(
                f"sia {cluster}", model, on[cluster], precision, "training", batch, times[len(times) // 2],
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
                options = StepOptions(precision="fp32", optimizer="momentum")
                graph = graph_at(Workload(read_model("resnet50"), BuildOptions(), options), step.batch)
            yield _single(
                "gavel", step.model, on[step.device], "fp32", "training", step.batch, step.step_seconds, graph
            )


def neusight_rows(data: Path) -> Iterator[TimedRow]:
    """NeuSight's transformers on one GPU, FP32: one source."""
    for each in neusight.read_steps(data):
        if each.is_compiled:
            continue
        options = StepOptions(
            precision="fp32", optimizer=None, attention="eager", forward_only=not each.is_training
        )
        sizes = BuildOptions(seq_len=each.seq_len, attention="eager")
        graph = graph_at(Workload(read_model(each.model), sizes, options), each.batch)
        yield _single(
            "neusight",
            each.model,
            each.device_id,
            "fp32",
            "training" if each.is_training else "forward",
            each.batch,
            each.seconds,
            graph,
        )


@cache
def _environment(on: str) -> Environment:
    machines = hardware(on)
    return Environment(machines.device, network_of(machines), _MODEL)


def _parallel(
    key: tuple[str, str, str, str, str], on: str, layout: Layout, micro_batches: int, measured: float,
    graph: Graph,
) -> TimedRow:  # fmt: skip
    """A step on many GPUs."""
    step = parallel_step(graph, layout, micro_batches, _environment(on))
    bounds = step.estimate.quantiles
    exposed = step.run.exposed_seconds / bounds.p50 if bounds.p50 else 0.0
    traits = step_traits(step.priced, exposed)
    return _row(key, graph.batch * micro_batches, layout.devices, measured, bounds, traits)


def vtrain_rows(data: Path) -> Iterator[TimedRow]:
    """Megatron-DeepSpeed on one node of A100."""
    runs = vtrain.read_steps(data)
    shapes = set(_sample({run.shape for run in runs if run.layers <= 24}, 6))
    for run in _sample((run for run in runs if run.shape in shapes), 48):
        layout = Layout("megatron", tensor=run.tensor, data=run.data, pipeline=run.pipeline, overlaps=False)
        key = "vtrain", run.shape, "a100-sxm-80gb", "fp16", f"tp={run.tensor} pp={run.pipeline}"
        graph = transformer_graph(vtrain.model_of(run), run.micro_batch)
        yield _parallel(key, f"{vtrain.DEVICE}:{run.devices}", layout, run.micro_batches, run.seconds, graph)


def ultrascale_rows(data: Path) -> Iterator[TimedRow]:
    """nanotron on H100: one source."""
    runs = [run for run in ultrascale.read(data) if run.seconds and ultrascale.can_run(run)]
    for run in _sample(runs, 60):
        layout = Layout(
            "nanotron", tensor=run.tensor, pipeline=run.pipeline, sequence_parallel=run.tensor > 1,
            keeps_gathered=run.pipeline == 1, zero_stage=run.zero_stage,
            shard=run.data if run.zero_stage else 1, data=1 if run.zero_stage else run.data,
        )  # fmt: skip
        on = ultrascale.HARDWARE + (f":{run.nodes}" if run.nodes > 1 else "")
        key = "ultrascale", run.model, "h100-sxm", "bf16", f"tp={run.tensor} pp={run.pipeline}"
        graph = transformer_graph(ultrascale.model_of(run), run.micro_batch)
        assert run.seconds is not None
        yield _parallel(key, on, layout, run.micro_batches, run.seconds, graph)


def mpt_rows(data: Path) -> Iterator[TimedRow]:
    """MPT under FSDP on A100 and H100: one source."""
    ids = {"h100_80gb": "h100-sxm", "a100_80gb": "a100-sxm-80gb", "a100_40gb": "a100-sxm-40gb"}
    for row in _sample(rows(data / "llm_foundry/mpt_throughput.csv"), 40):
        if "bf16" not in row["precision"] or row["gpu"] not in ids or int(row["layers"]) > 24:
            continue
        seq_len, gpus = int(row["seq_len"]), int(row["gpus"])
        micro, rounds = int(row["micro_batch"]), int(row["gradient_accumulation"])
        options = StepOptions(
            precision="bf16", optimizer="adamw", attention="flash", weights="bf16", master_weights=True,
            checkpoint_activations=row["activation_checkpointing"] == "1",
        )  # fmt: skip
        config = {
            "layers": int(row["layers"]), "width": int(row["width"]), "heads": int(row["heads"]),
            "vocabulary": int(row["vocabulary"]), "positions": seq_len,
        }  # fmt: skip
        graph = transformer_graph(Transformer("gpt", seq_len, options, config, row["model"]), micro)
        seconds = micro * rounds * seq_len / float(row["tokens_per_second_per_gpu"])
        on = ids[row["gpu"]]
        nodes = f"x{gpus // 8}" if gpus > 8 else ""
        layout = Layout("fsdp", shard=gpus, zero_stage=3)
        key = "llm_foundry", f"mpt-{row['model']} {seq_len}", on, "bf16", "fsdp"
        yield _parallel(key, f"{on}:{min(gpus, 8)}{nodes}", layout, rounds, seconds, graph)


READERS: Mapping[str, Callable[[Path], Iterator[TimedRow]]] = {
    "lambda": lambda_rows,
    "sia": sia_rows,
    "gavel": gavel_rows,
    "ryujaehun": ryujaehun_rows,
    "vtrain": vtrain_rows,
    "ultrascale": ultrascale_rows,
    "llm_foundry": mpt_rows,
    "neusight": neusight_rows,
    "profet": profet_rows,
    "timm": timm_rows,
}


def timed_rows(data: Path, cached: Path | None = None) -> tuple[TimedRow, ...]:
    """The rows of all data sets; those of a set that `cached` has a file of are read from it."""
    listed: list[TimedRow] = []
    for name, reader in READERS.items():
        file = None if cached is None else cached / f"{name}.csv"
        if file is not None and file.exists():
            listed += read_rows(file)
            continue
        made: list[TimedRow] = list(reader(data))
        if file is not None:
            write_rows(file, made)
        listed += made
    return tuple(listed)


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
