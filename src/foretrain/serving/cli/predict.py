"""`foretrain predict`: what a training step takes on given hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrain.serving.cli import workload_options as given
from foretrain.serving.cli.parameters import Json, complete_device

if TYPE_CHECKING:
    from foretrain.prediction.prediction import Prediction
    from foretrain.prediction.step_models import StepModel

END_TO_END = "end-to-end"
On = Annotated[
    str,
    typer.Option(
        "--on",
        help="DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES or PROVIDER:INSTANCE[:NODES].",
        autocompletion=complete_device,
    ),
]
Strategy = Annotated[str, typer.Option("--strategy", help="ddp, zero1, zero2, zero3 or fsdp.")]
Pricing = Annotated[
    str,
    typer.Option("--model", help="What tells the time: foretrain, roofline, per-layer or end-to-end."),
]
Timings = Annotated[
    Path | None, typer.Option("--timings", help="Your own timings, which --model end-to-end learns from.")
]
Dataset = Annotated[
    str | None,
    typer.Option("--dataset", help="Also read and decode: imagenet-jpeg, cifar10, mnist, tokens, synthetic."),
]
Storage = Annotated[
    str, typer.Option("--storage", help="Where the data set lies: nvme, sata-ssd, hdd or network-disk.")
]
LoaderWorkers = Annotated[
    int, typer.Option("--loader-workers", help="Processes that load samples; 0: the training process.")
]
Prefetch = Annotated[bool, typer.Option("--prefetch/--no-overlap", help="Whether loading overlaps training.")]
WithAdvice = Annotated[
    bool, typer.Option("--advice/--no-advice", help="Whether to work out what would make the step faster.")
]
Check = Annotated[bool, typer.Option("--check", help="Exit with 1 if it does not fit.")]


def predict(
    model: given.Model,
    on: On,
    batch: given.Batch = None,
    seq_len: given.SeqLen = None,
    image_size: given.ImageSize = None,
    precision: given.Precision = None,
    optimizer: given.Optimizer = None,
    strategy: Strategy = "ddp",
    attention: given.Attention = None,
    channels_last: given.ChannelsLast = False,
    compile: given.Compile = False,  # noqa: A002 - the option's name in the contract
    cuda_graphs: given.CudaGraphs = False,
    checkpoint_activations: given.CheckpointActivations = False,
    half_weights: given.HalfWeights = False,
    full_gradients: given.FullGradients = False,
    lora: given.Lora = None,
    forward_only: given.ForwardOnly = False,
    no_optimizer: given.NoOptimizer = False,
    dataset: Dataset = None,
    storage: Storage = "nvme",
    loader_workers: LoaderWorkers = 4,
    prefetch: Prefetch = True,
    pricing: Pricing = "foretrain",
    timings: Timings = None,
    advice: WithAdvice = True,
    check: Check = False,
    json: Json = False,
) -> None:
    """Predict what a training step takes: its time on one device, its memory, and what holds it back.

    \b
    Examples:
      foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16 --channels-last
      foretrain predict resnet50 --on v100-sxm2-16gb --batch 64 --dataset imagenet-jpeg --storage hdd
      foretrain predict llama3-8b --on h100-sxm:8 --strategy zero3 --precision bf16
    """
    options = given.chosen(locals())
    from foretrain.facts.hardware import hardware
    from foretrain.prediction.input_pipeline import InputOptions
    from foretrain.prediction.prediction import predict as core
    from foretrain.serving.cli.terminal import print_json, spinner

    machine = hardware(on)
    tells_time = _step_model(pricing, timings, model)
    samples_from = InputOptions(dataset, storage, loader_workers, prefetch)
    with spinner(f"Predicting {model}") as progress:
        progress("reading the model")
        workload = given.workload(options)
        progress("walking through the step")
        prediction = core(workload, machine, strategy, tells_time, samples_from, with_advice=advice)
    if json:
        print_json(_as_object(prediction))
    else:
        from foretrain.serving.cli.prediction_text import show

        show(prediction)
    if check and not prediction.memory.fits:
        from foretrain.errors import EXIT_INFEASIBLE

        raise typer.Exit(EXIT_INFEASIBLE)


def _step_model(pricing: str, timings: Path | None, model: str) -> StepModel | str:
    """What tells the time of a step; a regression on whole steps needs timings, and nothing else does."""
    from foretrain.errors import InvalidRequest

    if pricing != END_TO_END:
        if timings is not None:
            raise InvalidRequest(f"--timings is for --model {END_TO_END}; --model {pricing} learns from none")
        return pricing
    if timings is None:
        raise InvalidRequest(f"--model {END_TO_END} is fitted to your own timings: give --timings FILE")
    from foretrain.learning.regression.step_model import end_to_end_steps

    return end_to_end_steps(timings, model)


def _as_object(prediction: Prediction) -> dict[str, Any]:
    graph, hardware = prediction.graph, prediction.hardware
    return {
        "workload": given.description(prediction.workload, graph.samples, graph.tokens),
        "hardware": {
            "name": hardware.name,
            "device": hardware.device.id,
            "devices_per_node": hardware.devices_per_node,
            "nodes": hardware.nodes,
            "strategy": prediction.strategy,
        },
        "knowledge": prediction.knowledge,
        "step": prediction.step,
        "throughput": prediction.throughput,
        "memory": prediction.memory,
        "bottleneck": prediction.bottleneck,
        "coverage": prediction.coverage,
        "sources": prediction.sources,
        "notes": prediction.notes,
    }
