"""The options that say what is trained and how; `trace`, `predict` and `plan` share them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from foretrain.workloads.workload import Workload

MODEL_FORMS = (
    "zoo name, hf:CONFIG, timm:NAME, torchvision:NAME, FILE.py:callable, FILE.onnx, FILE.pt2 or FILE.yaml"
)


def _complete_model(incomplete: str) -> list[str]:
    from foretrain.workloads.zoo import zoo

    return [name for name in zoo() if name.startswith(incomplete.lower())]


Model = Annotated[str, typer.Argument(help=f"What to train: {MODEL_FORMS}.", autocompletion=_complete_model)]
Batch = Annotated[int | None, typer.Option("--batch", help="Samples per device and step.")]
SeqLen = Annotated[int | None, typer.Option("--seq-len", help="Tokens per sample.")]
ImageSize = Annotated[int | None, typer.Option("--image-size", help="Pixels along each side.")]
Precision = Annotated[
    str | None, typer.Option("--precision", help="fp32 (default), tf32, fp16, bf16 (mixed) or fp8.")
]
Optimizer = Annotated[
    str | None, typer.Option("--optimizer", help="sgd, momentum, adam, adamw (default), adafactor ...")
]
Attention = Annotated[str | None, typer.Option("--attention", help="eager, sdpa (default) or flash.")]
ChannelsLast = Annotated[bool, typer.Option("--channels-last", help="Images in NHWC layout.")]
Compile = Annotated[bool, typer.Option("--compile", help="As torch.compile would run it.")]
CudaGraphs = Annotated[
    bool, typer.Option("--cuda-graphs", help="Replay the step as a captured graph, launched once.")
]
CheckpointActivations = Annotated[
    bool, typer.Option("--checkpoint-activations", help="Recompute activations in the backward pass.")
]
HalfWeights = Annotated[
    bool,
    typer.Option("--half-weights", help="Weights in fp16/bf16 too, FP32 copies in the optimizer (Megatron)."),
]
FullGradients = Annotated[
    bool, typer.Option("--full-gradients", help="With --half-weights: add gradients up in FP32.")
]
Lora = Annotated[str | None, typer.Option("--lora", help="Train adapters only, e.g. r=16 or r=16,quantised.")]
ForwardOnly = Annotated[bool, typer.Option("--forward-only", help="No backward pass, no optimizer.")]
NoOptimizer = Annotated[bool, typer.Option("--no-optimizer", help="No optimizer step.")]


def chosen(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of a command's arguments that describe the workload. Pass `locals()`, first thing of all."""
    from foretrain.workloads.requests import WorkloadRequest

    known = {field.name for field in fields(WorkloadRequest)}
    return {name: value for name, value in arguments.items() if name in known}


def workload(options: dict[str, Any]) -> Workload:
    """The workload the options describe."""
    from foretrain.workloads.requests import WorkloadRequest, workload_of

    return workload_of(WorkloadRequest(**options))


def description(workload: Workload, samples: int, tokens: int) -> dict[str, Any]:
    """The workload as it appears in JSON."""
    from foretrain.encoding import encode

    return {
        "model": workload.source.name,
        "source": workload.source.kind,
        "batch": samples,
        "tokens": tokens,
        **encode(workload.options),
        "lora": encode(workload.lora),
    }
