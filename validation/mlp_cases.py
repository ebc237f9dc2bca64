"""The measured MLPs of GPUMemNet: rebuilt from their rows, trained with Adam in FP32."""

from __future__ import annotations

import ast
import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrain.errors import MissingData
from foretrain.workloads.graph import Graph

MIB = 1 << 20


@dataclass(frozen=True)
class MeasuredMlp:
    """One row: the layers as (kind, width), the batch, and the peak that nvidia-smi showed."""

    name: str
    inputs: int
    layers: tuple[tuple[str, int], ...]
    batch: int
    measured_bytes: float


def mlps(data: Path, every: int) -> Iterator[MeasuredMlp]:
    """Every n-th row of both files."""
    files = sorted((data / "gpumemnet").glob("mlp_memory_*.csv.gz"))
    if not files:
        raise MissingData(f"no gpumemnet/mlp_memory_*.csv.gz in {data}")
    for file in files:
        with gzip.open(file, "rt", newline="") as rows:
            for number, row in enumerate(csv.DictReader(rows)):
                if number % every == 0:
                    yield _mlp(row)


def _mlp(row: dict[str, str]) -> MeasuredMlp:
    name = row["Filename"].removesuffix(".out")
    return MeasuredMlp(
        name=name,
        inputs=int(name.split("_")[0].removeprefix("input:")),
        layers=tuple((kind, width) for kind, width, _ in ast.literal_eval(row["Activations-Params"])),
        batch=int(row["Batch Size"]),
        measured_bytes=float(row["Max GPU Memory (MiB)"]) * MIB,
    )


def graph(mlp: MeasuredMlp) -> Graph:
    """One training step of it."""
    import torch
    from torch.nn import functional

    from foretrain.workloads.example import Example
    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.tracing.step import trace

    with torch.device("meta"):
        module = torch.nn.Sequential(*_modules(mlp))
        inputs = torch.zeros(mlp.batch, mlp.inputs)
        classes = torch.zeros(mlp.batch, dtype=torch.long)
        truth = torch.zeros(mlp.batch, 1)

    def loss(output: Any) -> torch.Tensor:
        if output.shape[1] == 1:
            return functional.binary_cross_entropy_with_logits(output, truth)
        return functional.cross_entropy(output, classes)

    return trace(Example(module, (inputs,), loss, samples=mlp.batch), ResolvedOptions(optimizer="adam"))


def _modules(mlp: MeasuredMlp) -> Iterator[Any]:
    from torch import nn

    width = mlp.inputs
    for kind, size in mlp.layers:
        if kind == "linear":
            yield nn.Linear(width, size)
            width = size
        elif kind == "batch_normalization":
            yield nn.BatchNorm1d(size)
        elif kind == "dropout":
            yield nn.Dropout()
        elif kind == "Softmax":
            yield nn.Softmax(dim=1)
        else:
            yield getattr(nn, kind)()
