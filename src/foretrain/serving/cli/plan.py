"""`foretrain plan`: which machines to rent for a job, among all offers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrain.serving.cli import job_options as job
from foretrain.serving.cli import predict as predicting
from foretrain.serving.cli import workload_options as given
from foretrain.serving.cli.parameters import (
    Json,
    comma_separated,
    complete_device,
    complete_provider,
    duration,
    money,
    region_names,
)

if TYPE_CHECKING:
    from foretrain.jobs.batch_limits import BatchLimits
    from foretrain.planning.frontier import Frontier
    from foretrain.planning.plan import PlanRequest, StreamOptions

Deadline = Annotated[
    float | None, typer.Option("--deadline", parser=duration, help="By when it must be done: 12h, 2d.")
]
Budget = Annotated[
    float | None, typer.Option("--budget", parser=money, help="What it may cost: 200usd, $1,500.")
]
Confidence = Annotated[
    float, typer.Option("--confidence", help="How sure to be of deadline and budget: 0.9 for nine in ten.")
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu", help="Only these GPUs or families, comma-separated.", autocompletion=complete_device
    ),
]
Cloud = Annotated[
    str | None,
    typer.Option("--cloud", help="Only these clouds: aws,gcp.", autocompletion=complete_provider),
]
Regions = Annotated[
    str | None, typer.Option("--region", help="Only these regions of clouds, comma-separated.")
]
MaxGpus = Annotated[int, typer.Option("--max-gpus", help="At most so many GPUs together.")]
Strategies = Annotated[
    str, typer.Option("--strategy", help="auto (all that plan compares), or some of ddp,zero1,zero2,zero3.")
]
Layouts = Annotated[
    bool,
    typer.Option("--layouts", help="Search tensor, pipeline and other layouts for the front (seconds each)."),
]
MaxGlobalBatch = Annotated[
    int | None, typer.Option("--max-global-batch", help="The largest global batch to consider.")
]
JobsPerYear = Annotated[
    float | None, typer.Option("--jobs-per-year", help="How often it is run: is it worth buying machines?")
]
BuyPrice = Annotated[
    float | None,
    typer.Option("--buy-price", parser=money, help="What the chosen machines cost to buy, all of them."),
]
UsdPerKwh = Annotated[
    float | None, typer.Option("--usd-per-kwh", parser=money, help="Price of electricity for own machines.")
]
Why = Annotated[
    str | None, typer.Option("--why", help="Why machines of this name or GPU lost; `all` for every one.")
]
Emit = Annotated[
    str | None, typer.Option("--emit", help="Write a launch file: torchrun, slurm, skypilot or ray.")
]
EmitTo = Annotated[Path | None, typer.Option("--emit-to", help="Where to, if not here by its own name.")]
Script = Annotated[str, typer.Option("--script", help="What the launch file starts, with its arguments.")]
Html = Annotated[Path | None, typer.Option("--html", help="Write the report as one self-contained page.")]
Ci = Annotated[
    bool, typer.Option("--ci", "--check", help="Exit with 1 if nothing keeps the limits or nothing fits.")
]


def plan(
    model: given.Model,
    deadline: Deadline = None,
    budget: Budget = None,
    confidence: Confidence = 0.5,
    samples: predicting.Samples = None,
    epochs: job.Epochs = None,
    steps: job.StepCount = None,
    target: job.TargetValue = None,
    log: job.LogFile = None,
    planned_steps: job.PlannedSteps = None,
    schedule: job.LearningRate = None,
    history: job.HistoryFolder = None,
    epochs_at: job.EpochsAt = None,
    critical_batch: job.CriticalBatchSize = None,
    reference_batch: job.ReferenceBatch = None,
    gpu: Gpu = None,
    cloud: Cloud = None,
    region: Regions = None,
    spot: job.Spot = False,
    max_gpus: MaxGpus = 64,
    strategy: Strategies = "auto",
    layouts: Layouts = False,
    batch: given.Batch = None,
    micro_batches: predicting.MicroBatches = None,
    global_batch: predicting.GlobalBatch = None,
    max_global_batch: MaxGlobalBatch = None,
    links: predicting.Links = None,
    network: predicting.NetworkLink = None,
    seq_len: given.SeqLen = None,
    image_size: given.ImageSize = None,
    precision: given.Precision = None,
    optimizer: given.Optimizer = None,
    attention: given.Attention = None,
    channels_last: given.ChannelsLast = False,
    compile: given.Compile = False,  # noqa: A002 - the option's name in the contract
    cuda_graphs: given.CudaGraphs = False,
    checkpoint_activations: given.CheckpointActivations = False,
    half_weights: given.HalfWeights = False,
    full_gradients: given.FullGradients = False,
    lora: given.Lora = None,
    dataset: predicting.Dataset = None,
    storage: predicting.Storage = "nvme",
    loader_workers: predicting.LoaderWorkers = 4,
    prefetch: predicting.Prefetch = True,
    startup: job.Startup = None,
    checkpoint_every: job.CheckpointEvery = None,
    checkpoint_rate: job.CheckpointRate = None,
    eval_samples: job.EvalSamples = None,
    eval_every: job.EvalEvery = None,
    interruptions_per_day: job.InterruptionsPerDay = None,
    jobs_per_year: JobsPerYear = None,
    buy_price: BuyPrice = None,
    usd_per_kwh: UsdPerKwh = None,
    why: Why = None,
    emit: Emit = None,
    emit_to: EmitTo = None,
    script: Script = "train.py",
    html: Html = None,
    ci: Ci = False,
    json: Json = False,
) -> None:
    """Find what to rent: the best plan among all offers.

    Compares every offer, alone and several together, with every strategy and batch size that fits, and shows
    what nothing else beats in both time and money, what keeps deadline and budget, and how surely.

    \b
    Examples:
      foretrain plan resnet50 --samples 1281167 --epochs 90 --precision fp16 --deadline 24h
      foretrain plan bert-large --steps 7038 --global-batch 256 --precision fp16 --budget 200usd --spot
      foretrain plan llama3-8b --steps 2000 --global-batch 64 --precision bf16 --gpu h100,a100 --max-gpus 16
      foretrain plan resnet50 --samples 1281167 --epochs 90 --deadline 6h --html plan.html --emit skypilot
    """
    arguments = locals()
    from foretrain.errors import EXIT_INFEASIBLE, Infeasible
    from foretrain.planning.plan import plan as core
    from foretrain.serving.cli.terminal import as_far_as_it_is_read, print_json, print_line, spinner

    _check_files(arguments)
    with spinner(f"Planning {model}") as progress:
        progress("reading the model")
        request = _request(arguments)
        answer = core(request, progress)
    if isinstance(answer, Infeasible):
        if json:
            print_json({"infeasible": answer})
        else:
            print_line(str(answer), "bold red")
        raise typer.Exit(EXIT_INFEASIBLE if ci else 0)
    written = _written(answer, arguments, request.workload.options.precision)
    with as_far_as_it_is_read():
        _show(answer, arguments, written)
    if ci and not answer.meets_limits:
        raise typer.Exit(EXIT_INFEASIBLE)


def _show(answer: Frontier, arguments: dict[str, Any], written: list[str]) -> None:
    from foretrain.serving.cli.terminal import print_json, print_line

    if arguments["json"]:
        print_json(answer.to_dict())
        return
    from foretrain.serving.cli.plan_text import show

    show(answer, arguments["why"])
    for line in written:
        print_line(line, "green")


def _request(arguments: dict[str, Any]) -> PlanRequest:
    from foretrain.planning.machines import MachinesRequest
    from foretrain.planning.plan import PlanRequest
    from foretrain.planning.selection import Limits
    from foretrain.prediction.step.input_pipeline import InputOptions

    length, running = job.length_and_running(arguments | {"region": None})  # `machines` has regions
    workload = given.workload(given.chosen(arguments) | {"batch": None})
    return PlanRequest(
        workload=workload,
        length=length,
        options=running,
        machines=MachinesRequest(
            gpus=comma_separated(arguments["gpu"]),
            clouds=comma_separated(arguments["cloud"]),
            regions=region_names(arguments["region"]),
            most_devices=arguments["max_gpus"],
            links=arguments["links"],
            network=arguments["network"],
        ),
        batches=_batches(arguments),
        strategies=_strategies(arguments["strategy"]),
        limits=Limits(arguments["deadline"], arguments["budget"], arguments["confidence"]),
        input=InputOptions(
            arguments["dataset"], arguments["storage"], arguments["loader_workers"], arguments["prefetch"]
        ),
        stream=_stream(arguments),
        layouts=arguments["layouts"],
        with_prediction=arguments["html"] is not None,
    )


def _batches(arguments: dict[str, Any]) -> BatchLimits:
    from foretrain.jobs.batch_limits import BatchLimits

    names = ("batch", "micro_batches", "global_batch", "max_global_batch")
    return BatchLimits(*(arguments[name] for name in names))


def _strategies(text: str) -> tuple[str, ...]:
    from foretrain.prediction.strategies.catalogue import plan_words

    if text.strip() == "auto":
        return plan_words()
    return tuple("zero3" if name == "fsdp" else name for name in comma_separated(text))


def _stream(arguments: dict[str, Any]) -> StreamOptions | None:
    from foretrain.errors import InvalidRequest
    from foretrain.planning.plan import StreamOptions

    jobs, price, electricity = (arguments[name] for name in ("jobs_per_year", "buy_price", "usd_per_kwh"))
    if jobs is not None:
        return StreamOptions(jobs, price, electricity)
    if price is not None or electricity is not None:
        raise InvalidRequest("--buy-price and --usd-per-kwh are about buying: say --jobs-per-year too")
    return None


def _check_files(arguments: dict[str, Any]) -> None:
    """Refuse files that cannot be written before anything is planned."""
    from foretrain.errors import InvalidRequest
    from foretrain.serving.cli.output_files import check_file

    if arguments["emit"] is not None:
        from foretrain.planning.launch_files.catalogue import launch_targets

        launch_targets()[arguments["emit"]]
    elif arguments["emit_to"] is not None:
        raise InvalidRequest("--emit-to says where a launch file goes: say which with --emit")
    for option in ("html", "emit_to"):
        if arguments[option] is not None:
            check_file(f"--{option.replace('_', '-')}", arguments[option])


def _written(answer: Frontier, arguments: dict[str, Any], precision: str) -> list[str]:
    """The files asked for, and what to say of each."""
    said = []
    if arguments["html"] is not None:
        _write_report(answer, arguments["html"])
        said.append(f"Report: {arguments['html']}")
    if arguments["emit"] is not None:
        said.append(_emitted(answer, arguments, precision))
    return said


def _write_report(answer: Frontier, file: Path) -> None:
    from datetime import date

    from foretrain.serving.cli.command_line import as_typed
    from foretrain.serving.cli.output_files import write_file
    from foretrain.serving.html.plan_report import plan_report

    write_file("--html", file, plan_report(answer, as_typed(), date.today().isoformat()))


def _emitted(answer: Frontier, arguments: dict[str, Any], precision: str) -> str:
    """The launch file of the plan shown; an existing file is replaced only if it was named."""
    import shlex

    from foretrain.errors import InvalidRequest
    from foretrain.planning.launch_files.catalogue import launch_file, launch_plan, launch_targets
    from foretrain.serving.cli.output_files import write_file

    target = launch_targets()[arguments["emit"]]
    launched = launch_file(arguments["emit"], launch_plan(answer, precision, arguments["script"]))
    file = arguments["emit_to"] or Path(launched.file_name)
    if arguments["emit_to"] is None and file.exists():
        raise InvalidRequest(f"{file} exists already: move it away, or name a file with --emit-to")
    write_file("--emit-to", file, launched.named(file.name).text)
    late = "" if answer.meets_limits else " of that plan, which does not keep the limits"
    start = target.how_to_start.format(file=shlex.quote(str(file)))
    return f"Launch file{late}: {file}; start it with: {start}"
