"""`foretrain guide`: which hardware to buy or rent for which network and batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foretrain.serving.cli import workload_options as given
from foretrain.serving.cli.parameters import Json, comma_separated, complete_device, complete_provider

Models = Annotated[list[str], typer.Argument(metavar="MODEL", help=f"What to train: {given.MODEL_FORMS}.")]
On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="Hardware, as often as you like (or a,b,c): DEVICE[:COUNT], PROVIDER:INSTANCE, FILE.yaml.",
        autocompletion=complete_device,
    ),
]
Counts = Annotated[
    str | None,
    typer.Option("--counts", metavar="NUMBERS", help="How many of each GPU named alone, e.g. 1,2,4,8."),
]
Batches = Annotated[
    str | None,
    typer.Option(
        "--batch", metavar="NUMBERS", help="Global batches: 32,64,96 or 32..8192 by doubling (default)."
    ),
]
Samples = Annotated[
    int | None, typer.Option("--samples", help="Samples of an epoch, to tell its time and cost.")
]
Strategy = Annotated[str, typer.Option("--strategy", help="ddp, dp, zero1, zero2, zero3, fsdp or hsdp.")]
Clouds = Annotated[
    str | None,
    typer.Option("--cloud", help="Whose prices count, e.g. aws,gcp.", autocompletion=complete_provider),
]
Show = Annotated[
    list[str] | None,
    typer.Option(
        "--show",
        metavar="VIEWS",
        help="time, cost, speedup, memory, verdict; also throughput, value, transfer (or a,b,c).",
    ),
]
Html = Annotated[Path | None, typer.Option("--html", help="Write the guide into this file, all in one page.")]


def guide(
    models: Models,
    on: On = None,
    counts: Counts = None,
    batch: Batches = None,
    seq_len: given.SeqLen = None,
    image_size: given.ImageSize = None,
    precision: given.Precision = None,
    optimizer: given.Optimizer = None,
    attention: given.Attention = None,
    channels_last: given.ChannelsLast = False,
    compile: given.Compile = False,  # noqa: A002 - the option's name in the contract
    checkpoint_activations: given.CheckpointActivations = False,
    samples: Samples = None,
    strategy: Strategy = "ddp",
    cloud: Clouds = None,
    show: Show = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """The buyer's guide: networks by hardware by batch size.

    Every machine trains the same global batch, shared out over its devices: time, cost, speed-up, memory and
    what sets the pace; which machine to take, and from which batch on more GPUs pay. Without --on: a CPU, and
    1, 2, 4 and 8 GPUs of three classes, at the cheapest current prices.

    \b
    Examples:
      foretrain guide resnet50 --precision fp16 --samples 1281167
      foretrain guide voice-linear voice-conv --on gtx1080ti --counts 1,2,4 --strategy dp --samples 2000
      foretrain guide mnist-cnn resnet18 --on epyc-7742 --on rtx2080ti --counts 1,2,4,8 --html guide.html
      foretrain guide bert-large --on aws:g5.xlarge,aws:g5.12xlarge --batch 32..512 --show time,cost
    """
    options = given.chosen(locals())
    options.pop("batch")
    from foretrain.planning.guide.guide import BATCHES, GuideRequest
    from foretrain.planning.guide.guide import guide as core
    from foretrain.planning.guide.machines import default_machines, machines_named
    from foretrain.serving.cli.output_files import check_file, write_file
    from foretrain.serving.cli.terminal import print_json, print_line, spinner
    from foretrain.serving.guide_views import check_names

    names = tuple(name for text in show or () for name in comma_separated(text))
    check_names(names)
    if html is not None:
        check_file("--html", html)
    hardware = tuple(name for text in on or () for name in comma_separated(text))
    clouds = comma_separated(cloud)
    machines = machines_named(hardware, whole_numbers("--counts", counts), clouds)
    with spinner("Guide") as progress:
        progress("reading the models")
        answer = core(
            GuideRequest(
                workloads=tuple(
                    given.workload({**options, "model": model}) for model in dict.fromkeys(models)
                ),
                machines=machines or default_machines(clouds),
                batches=whole_numbers("--batch", batch) or BATCHES,
                samples=samples,
                strategy=strategy,
            ),
            progress,
        )
    if html is not None:
        from datetime import date

        from foretrain.serving.cli.command_line import as_typed
        from foretrain.serving.html.guide_report import guide_report

        write_file("--html", html, guide_report(answer, as_typed(), date.today().isoformat()))
    if json:
        print_json(answer.to_dict())
        return
    from foretrain.serving.cli import guide_text

    guide_text.show(answer, names)
    if html is not None:
        print_line(f"Page: {html}")


def whole_numbers(option: str, text: str | None) -> tuple[int, ...]:
    """The numbers of `32,64,96`, or of `32..8192` by doubling; nothing for None."""
    from foretrain.errors import InvalidRequest

    found: list[int] = []
    for item in comma_separated(text):
        first, dots, last = item.partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()) or int(first) < 1:
            raise InvalidRequest(f"{option} {text}: write whole numbers above 0 as 2,4,6 or 2..64 (doubling)")
        number = int(first)
        if dots and int(last) < number:
            raise InvalidRequest(f"{option} {item} ends before it begins: write {last}..{first}")
        found.append(number)
        while dots and 2 * number <= int(last):
            number *= 2
            found.append(number)
    return tuple(dict.fromkeys(found))
