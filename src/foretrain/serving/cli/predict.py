"""`foretrain predict`: what a training step takes on given hardware."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foretrain.serving.cli import job_options as job
from foretrain.serving.cli import workload_options as given
from foretrain.serving.cli.parameters import Json, complete_device

if TYPE_CHECKING:
    from foretrain.prediction.answer import Prediction
    from foretrain.prediction.cost_models.step_models import CostModel

END_TO_END = "end-to-end"
On = Annotated[
    str,
    typer.Option(
        "--on",
        help="DEVICE, DEVICE:COUNT, DEVICE:PER_NODExNODES, PROVIDER:INSTANCE[:NODES] or a cluster FILE.yaml.",
        autocompletion=complete_device,
    ),
]
Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        help="ddp, dp, fsdp, hsdp, zero1-3, ps-sync, ps-async, ps-ksync=K ..., tp=T,pp=P,dp=D[,...] or auto.",
    ),
]
MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", help="Parts each replica's batch is trained in, one by one.")
]
GlobalBatch = Annotated[
    int | None, typer.Option("--global-batch", help="Samples of a step on all devices, in place of --batch.")
]
LeastBatch = Annotated[
    int | None,
    typer.Option("--least-batch", help="Samples below which a device is of no use, where nodes differ."),
]
Links = Annotated[
    str | None, typer.Option("--links", help="LINK[:COUNT] inside a node, e.g. pcie3-x16 or nvlink2:6.")
]
NetworkLink = Annotated[
    str | None, typer.Option("--network", help="LINK[:CARDS] between nodes, e.g. infiniband-ndr:8.")
]
Jitter = Annotated[
    float | None,
    typer.Option("--jitter", help="How much step times vary between devices, if not as usual: 0 for not."),
]
Samples = Annotated[int | None, typer.Option("--samples", help="Samples of an epoch, to tell its time.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw how the step scales into this .png or .svg file.")
]
TimelineFile = Annotated[
    Path | None, typer.Option("--timeline", help="Write the step's streams as a Chrome trace (Perfetto).")
]
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
    micro_batches: MicroBatches = None,
    global_batch: GlobalBatch = None,
    least_batch: LeastBatch = None,
    links: Links = None,
    network: NetworkLink = None,
    jitter: Jitter = None,
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
    samples: Samples = None,
    steps: job.StepCount = None,
    epochs: job.Epochs = None,
    epochs_at: job.EpochsAt = None,
    critical_batch: job.CriticalBatchSize = None,
    reference_batch: job.ReferenceBatch = None,
    target: job.TargetValue = None,
    log: job.LogFile = None,
    planned_steps: job.PlannedSteps = None,
    schedule: job.LearningRate = None,
    history: job.HistoryFolder = None,
    startup: job.Startup = None,
    checkpoint_every: job.CheckpointEvery = None,
    checkpoint_rate: job.CheckpointRate = None,
    eval_samples: job.EvalSamples = None,
    eval_every: job.EvalEvery = None,
    spot: job.Spot = False,
    interruptions_per_day: job.InterruptionsPerDay = None,
    usd_per_hour: job.UsdPerHour = None,
    region: job.Region = None,
    timeline: TimelineFile = None,
    plot: Plot = None,
    advice: WithAdvice = True,
    check: Check = False,
    json: Json = False,
) -> None:
    """Predict a training step: its time, its memory, what holds it back; and what the whole job takes.

    \b
    Examples:
      foretrain predict resnet50 --on rtx3090 --batch 192 --precision fp16 --channels-last
      foretrain predict resnet50 --on v100-sxm2-16gb --batch 64 --dataset imagenet-jpeg --storage hdd
      foretrain predict llama3-8b --on h100-sxm:8 --strategy zero3 --precision bf16 --batch 1
      foretrain predict bert-large --on aws:g5.12xlarge:2 --batch 8 --timeline step.json
      foretrain predict llama3-70b --on h100-sxm:8x8 --strategy auto --global-batch 512 --precision bf16
      foretrain predict resnet50 --on cluster.yaml --global-batch 256
      foretrain predict resnet50 --on aws:g5.xlarge --batch 64 --samples 1281167 --epochs 90 --spot
    """
    options, whole = given.chosen(locals()), job.asked(locals())
    from foretrain.errors import EXIT_INFEASIBLE, Infeasible
    from foretrain.facts.clusters import cluster
    from foretrain.jobs.epoch import epoch_of
    from foretrain.prediction.predict import predict as core
    from foretrain.prediction.scenario import Parallelism, Scenario
    from foretrain.prediction.step.input_pipeline import InputOptions
    from foretrain.serving.cli.terminal import print_json, print_line, spinner

    parallelism = Parallelism(strategy, micro_batches, global_batch, least_batch, links, network, jitter)
    with spinner(f"Predicting {model}") as progress:
        progress("reading the model")
        scenario = Scenario(
            given.workload(options),
            cluster(on),
            parallelism,
            _step_model(pricing, timings, model),
            InputOptions(dataset, storage, loader_workers, prefetch),
            advice,
        )
        progress("simulating the step")
        prediction = core(scenario)
    if isinstance(prediction, Infeasible):
        if json:
            print_json({"infeasible": prediction})
        else:
            print_line(str(prediction), "bold red")
        raise typer.Exit(EXIT_INFEASIBLE if check else 0)
    if timeline is not None:
        _write_timeline(prediction, timeline)
    if plot is not None:
        _draw_scaling(prediction, plot)
    epoch = None if samples is None else epoch_of(prediction, samples)
    answer = job.answer(prediction, whole)
    if json:
        more = {"epoch": epoch, "job": answer}
        print_json(prediction.to_dict() | {key: value for key, value in more.items() if value is not None})
    else:
        from foretrain.serving.cli.prediction_text import show

        show(prediction, epoch, answer)
    if check and not prediction.memory.fits:
        raise typer.Exit(EXIT_INFEASIBLE)


def _write_timeline(prediction: Prediction, file: Path) -> None:
    """The streams of the step, as a Chrome trace."""
    from foretrain.encoding import to_json
    from foretrain.errors import InvalidRequest
    from foretrain.facts.user_data import write_atomically
    from foretrain.prediction.timeline import chrome_trace

    if not file.parent.is_dir():
        raise InvalidRequest(f"--timeline {file}: there is no folder {file.parent}")
    title = f"{prediction.workload.source.name} on {prediction.cluster.name}, {prediction.strategy}"
    write_atomically(file, to_json(chrome_trace(prediction.timeline, title)).encode())


def _draw_scaling(prediction: Prediction, file: Path) -> None:
    from foretrain.errors import InvalidRequest
    from foretrain.serving.plots import draw_scaling_curve

    if prediction.parallelism.scaling is None:
        raise InvalidRequest("--plot draws how a step scales: name more than one device, with --advice")
    draw_scaling_curve(prediction.parallelism.scaling, prediction.workload.source.name, file)


def _step_model(pricing: str, timings: Path | None, model: str) -> CostModel | str:
    """What tells the time of a step; a regression on whole steps needs timings, and nothing else does."""
    from foretrain.errors import InvalidRequest
    from foretrain.prediction.operators.catalogue import CHOICES

    if pricing not in (*CHOICES, END_TO_END):
        raise InvalidRequest(f"model {pricing!r} is not one of {', '.join((*CHOICES, END_TO_END))}")
    if pricing != END_TO_END:
        if timings is not None:
            raise InvalidRequest(f"--timings is for --model {END_TO_END}; --model {pricing} learns from none")
        return pricing
    if timings is None:
        raise InvalidRequest(f"--model {END_TO_END} is fitted to your own timings: give --timings FILE")
    from foretrain.learning.regression.cost_model import end_to_end_steps

    return end_to_end_steps(timings, model)
