"""vTrain's measured iterations: GPT models trained by Megatron-DeepSpeed on one node of A100.

Activation checkpointing of every layer, 1F1B, FP16 weights, gradients reduced after the backward pass;
vocabulary 51,200. Bang et al. 2024, arXiv:2312.12391.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from foretrain.learning.measurements._base import rows
from foretrain.learning.measurements.transformer_graphs import Transformer
from foretrain.workloads.options import StepOptions

FILE = Path("vtrain/megatron_single_node_a100.csv")
DEVICE = "a100-sxm-80gb"
_VOCABULARY = 51_200
_OPTIONS = StepOptions(
    precision="fp16",
    optimizer="adamw-fused",
    attention="eager",
    checkpoint_activations=True,
    half_weights=True,
)


@dataclass(frozen=True, slots=True)
class MegatronRun:
    """One measured configuration. `batch` counts the sequences of a step, `micro_batch` of one pass."""

    tensor: int
    data: int
    pipeline: int
    batch: int
    micro_batch: int
    width: int
    heads: int
    layers: int
    seq_len: int
    seconds: float

    @property
    def devices(self) -> int:
        """How many GPUs it ran on."""
        return self.tensor * self.data * self.pipeline

    @property
    def micro_batches(self) -> int:
        """Passes of one replica in a step."""
        return self.batch // (self.micro_batch * self.data)

    @property
    def shape(self) -> str:
        """The model's size, which splits leave out whole."""
        return f"width {self.width}, {self.layers} layers"


def read(data: Path) -> tuple[MegatronRun, ...]:
    """All runs."""
    return tuple(
        MegatronRun(
            tensor=int(row["tensor parallelism"]),
            data=int(row["data parallelism"]),
            pipeline=int(row["pipeline parallelism"]),
            batch=int(row["global batch"]),
            micro_batch=int(row["micro batch"]),
            width=int(row["hidden size"]),
            heads=int(row["attention heads"]),
            layers=int(row["# layers"]),
            seq_len=int(row["sequence length"]),
            seconds=float(row["iteration time (ms)"]) * 1e-3,
        )
        for row in rows(data / FILE)
    )


def model_of(run: MegatronRun) -> Transformer:
    """The model as Megatron runs it."""
    config = {
        "layers": run.layers,
        "width": run.width,
        "heads": run.heads,
        "vocabulary": _VOCABULARY,
        "positions": run.seq_len,
        "activation": "gelu-tanh",
        "fused_kernels": True,
    }
    return Transformer("gpt", run.seq_len, _OPTIONS, config, f"GPT of {run.shape}")
