"""`foretrain predict`: what a training step takes on given hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrain.serving.cli import workload_options as given
from foretrain.serving.cli.parameters import Json, complete_device

if TYPE_CHECKING:
    from foretrain.prediction.prediction import Prediction

On = Annotated[
    str,
    typer.Option(
        "--on",
        help="DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES or PROVIDER:INSTANCE[:NODES].",
        autocompletion=complete_device,
    ),
]
Strategy = Annotated[str, typer.Option("--strategy", help="ddp, zero1, zero2, zero3 or fsdp.")]
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
    checkpoint_activations: given.CheckpointActivations = False,
    lora: given.Lora = None,
    forward_only: given.ForwardOnly = False,
    no_optimizer: given.NoOptimizer = False,
    check: Check = False,
    json: Json = False,
) -> None:
    """Predict what a training step takes: today its memory.

    \b
    Examples:
      foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16
      foretrain predict llama3-8b --on h100-sxm:8 --strategy zero3 --precision bf16
    """
    options = given.chosen(locals())
    from foretrain.facts.hardware import hardware
    from foretrain.prediction.prediction import predict as core
    from foretrain.serving.cli.terminal import print_json, spinner

    machine = hardware(on)
    with spinner(f"Predicting {model}") as progress:
        progress("reading the model")
        workload = given.workload(options)
        progress("walking through the step")
        prediction = core(workload, machine, strategy)
    if json:
        print_json(_as_object(prediction))
    else:
        _show(prediction)
    if check and not prediction.memory.fits:
        from foretrain.errors import EXIT_INFEASIBLE

        raise typer.Exit(EXIT_INFEASIBLE)


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
        "memory": prediction.memory,
    }


def _show(prediction: Prediction) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bytes

    memory, graph, hardware = prediction.memory, prediction.graph, prediction.hardware
    print_line(
        f"{prediction.workload.source.name} on {hardware.name}, batch {graph.batch} per device", "bold"
    )
    verdict = "fits" if memory.fits else "does not fit"
    print_line(
        f"Memory: {format_bytes(memory.bytes.p50)} "
        f"(80 % between {format_bytes(memory.bytes.p10)} and {format_bytes(memory.bytes.p90)}), {verdict} "
        f"into the {format_bytes(memory.capacity_bytes)} of {hardware.device.id}",
        "green" if memory.fits else "red",
    )
    print_line(f"Largest batch that fits: {memory.largest_batch or 'none'}")
    print_line()
    rows = [
        (part.name, format_bytes(part.bytes), f"{part.bytes / memory.bytes.p50:.1%}") for part in memory.parts
    ]
    print_table([Column("memory of"), Column("size", right=True), Column("share", right=True)], rows)
    if memory.advice:
        print_line()
        print_table(
            [Column("what would help"), Column("needs", right=True), Column("fits")],
            [
                (remedy.change, format_bytes(remedy.bytes), "yes" if remedy.fits else "no")
                for remedy in memory.advice
            ],
        )
