"""vTrain's measurements: Megatron-DeepSpeed iterations on one node of A100, and NCCL all-reduces over NVLink.

Iterations are of GPT models with activation checkpointing of every layer, 1F1B, FP16 weights, gradients
reduced after the backward pass and a vocabulary of 51,200. All-reduces are among 2 to 8 A100 on a switch and
2 to 8 V100 in the mesh of a DGX-1. Reference: Bang et al., arXiv:2312.12391, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calibration.datasets.measurements import CollectiveTime, rows
from calibration.datasets.transformer_graphs import Transformer
from foretrain.prediction.collectives.costs import Verb
from foretrain.workloads.options import ResolvedOptions

SOURCE = "vtrain"
STEP_FILE = Path("vtrain/megatron_single_node_a100.csv")
ALL_REDUCE_FILE = Path("vtrain/nvlink_allreduce.csv.gz")
DEVICE = "a100-sxm-80gb"
_VOCABULARY = 51_200
_OPTIONS = ResolvedOptions(
    precision="fp16",
    optimizer="adamw-fused",
    attention="eager",
    checkpoint_activations=True,
    weights="fp16",
    master_weights=True,
)
_ALL_REDUCE_MACHINES = {"a100": ("a100-sxm-80gb:8", "nvswitch"), "v100": ("dgx-1v", "nvlink-mesh")}


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


def read_steps(data: Path) -> tuple[MegatronRun, ...]:
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
        for row in rows(data / STEP_FILE)
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


def read_all_reduces(data: Path) -> tuple[CollectiveTime, ...]:
    """All sizes, 1 MiB to 1 GiB in steps of 1 MiB."""
    return tuple(
        CollectiveTime(
            SOURCE,
            *_ALL_REDUCE_MACHINES[row["device"]],
            Verb.ALL_REDUCE,
            int(row["gpus"]),
            float(row["bytes"]),
            float(row["time_us"]) * 1e-6,
        )
        for row in rows(data / ALL_REDUCE_FILE)
    )
