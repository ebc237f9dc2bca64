"""Hugging Face's ultra-scale playbook: Llama of 1B and 8B trained by nanotron on 8 to 512 H100.

Sequences of 4,096 tokens, 256 a step, BF16 weights with FP32 masters, gradients added up and reduced in FP32,
tensor parallelism with sequence parallelism, 1F1B, ZeRO stage 0 or 1. Architectures are those of the script
that made the runs (huggingface/nanotron, scripts/scaling_benchmarks.py): as many key-value heads as heads,
vocabulary 131,072. The embedding is tied to the output in the 1B model on one pipeline stage alone: the FLOP
per token that the table's MFU implies count the output layer once there, twice everywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from calibration.datasets.measurements import rows
from calibration.datasets.transformer_graphs import Transformer
from foretrain.workloads.options import ResolvedOptions

FILE = Path("ultrascale/llama_h100_3d_parallel.csv")
HARDWARE = "aws:p5.48xlarge"
SEQ_LEN = 4096
SEQUENCES = 256
_VOCABULARY = 131_072
_ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "1B": {"layers": 16, "width": 2048, "heads": 32, "kv_heads": 32, "hidden": 8192},
    "8B": {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 32, "hidden": 14_336},
}
_TIED = "1B"
_HEAD, _CAST, _LOSS = "aten.mm", "aten._to_copy", "aten._log_softmax"
_OPTIONS = ResolvedOptions(
    precision="bf16",
    optimizer="adamw-fused",
    attention="flash",
    weights="bf16",
    master_weights=True,
    gradients="fp32",
)


@dataclass(frozen=True, slots=True)
class NanotronRun:
    """One configuration; what was measured is None where it did not run."""

    model: str
    nodes: int
    data: int
    pipeline: int
    tensor: int
    zero_stage: int
    micro_batch: int
    micro_batches: int
    tokens_per_second: float | None
    memory_bytes: float | None

    @property
    def devices(self) -> int:
        """How many GPUs it ran on."""
        return self.data * self.pipeline * self.tensor

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.data * self.micro_batch * self.micro_batches * SEQ_LEN

    @property
    def seconds(self) -> float | None:
        """Time of a step."""
        return None if self.tokens_per_second is None else self.tokens / self.tokens_per_second


def read(data: Path) -> tuple[NanotronRun, ...]:
    """All configurations, those that did not run included."""
    return tuple(
        NanotronRun(
            model=row["model"],
            nodes=int(row["nodes"]),
            data=int(row["dp"]),
            pipeline=int(row["pp"]),
            tensor=int(row["tp"]),
            zero_stage=int(row["zero"]),
            micro_batch=int(row["mbs"]),
            micro_batches=int(row["grad_acc"]),
            tokens_per_second=_known(row["tok_s"]),
            memory_bytes=_known(row["gpu_mem_gb"], 2.0**30),
        )
        for row in rows(data / FILE)
    )


def _known(text: str, unit: float = 1.0) -> float | None:
    return float(text) * unit if text else None


def stage_starts(run: NanotronRun) -> tuple[str, ...]:
    """The modules, or calls outside of them, that pipeline stages after the first begin with.

    nanotron deals blocks out in order, to the next stage once the costs so far (multiplications of weights)
    exceed the stage's share of them; the block that exceeds it still belongs to the stage.
    """
    shape = _ARCHITECTURES[run.model]
    width, layers = shape["width"], shape["layers"]
    block, head = 4 * width * width + 3 * shape["hidden"] * width, _VOCABULARY * width
    repeated = [(f"blocks.{index}", block) for index in range(layers)]
    listed = [("tokens", 0), *repeated, ("norm", 0), (_HEAD, head), (_CAST, 0), (_LOSS, 0)]
    total = sum(cost for _, cost in listed)
    stage, done, is_new = 0, 0, False
    starts: list[str] = []
    for name, cost in listed:
        if is_new:
            starts.append(name)
        done += cost
        is_new = stage < run.pipeline - 1 and done > total * (stage + 1) / run.pipeline
        stage += is_new
    return tuple(starts)


def stage_layers(run: NanotronRun) -> tuple[int, ...]:
    """Blocks of every pipeline stage; the last stages, which may have head and loss alone, lend one each."""
    layers = _ARCHITECTURES[run.model]["layers"]
    starts = [name.partition("blocks.")[2] for name in stage_starts(run)]
    bounds = [0, *(int(block) if block else layers for block in starts), layers]
    for stage in range(len(bounds) - 2, 0, -1):
        bounds[stage] = min(bounds[stage], bounds[stage + 1] - 1)
    return tuple(end - start for start, end in pairwise(bounds))


def can_run(run: NanotronRun) -> bool:
    """Whether nanotron takes the configuration at all.

    Every stage needs something to run, and its 1F1B at least one micro-batch less than there are stages.
    """
    return len(stage_starts(run)) == run.pipeline - 1 and run.micro_batches >= run.pipeline - 1


def width_of(run: NanotronRun) -> int:
    """The width of the model's blocks."""
    return int(_ARCHITECTURES[run.model]["width"])


def flop_per_token(run: NanotronRun) -> float:
    """FLOP of a token, forward and backward: products with weights, and attention without its mask."""
    shape = _ARCHITECTURES[run.model]
    width, layers = shape["width"], shape["layers"]
    weights = layers * (4 * width * width + 3 * width * shape["hidden"]) + _VOCABULARY * width
    return float(3 * (2 * weights + layers * 4 * SEQ_LEN * width))


def model_of(run: NanotronRun) -> Transformer:
    """The model as nanotron runs it."""
    tied = run.model == _TIED and run.pipeline == 1
    config = {**_ARCHITECTURES[run.model], "vocabulary": _VOCABULARY, "tied": tied, "fused_kernels": True}
    return Transformer("llama", SEQ_LEN, _OPTIONS, config, f"Llama {run.model}{', tied' if tied else ''}")
