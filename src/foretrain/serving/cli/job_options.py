"""Options that say how long a job is and how it is run, and what they make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foretrain.serving.cli.parameters import bandwidth, duration, money

if TYPE_CHECKING:
    from foretrain.convergence.from_log import LogRequest
    from foretrain.jobs.job import Job, JobOptions
    from foretrain.jobs.length import LengthRequest
    from foretrain.prediction.answer import Prediction

StepCount = Annotated[int | None, typer.Option("--steps", help="Steps of the whole job.")]
Epochs = Annotated[float | None, typer.Option("--epochs", help="Epochs of the whole job, with --samples.")]
TargetValue = Annotated[
    str | None, typer.Option("--target", help="METRIC=VALUE at which the job ends, as --log will meet it.")
]
LogFile = Annotated[
    Path | None, typer.Option("--log", help="A training log, which tells the steps to --target.")
]
PlannedSteps = Annotated[
    float | None, typer.Option("--planned-steps", help="Where the run of --log is to end, in its own unit.")
]
LearningRate = Annotated[
    str | None, typer.Option("--schedule", help="Learning rate of --log: linear, cosine, step:0.5,0.75 ...")
]
HistoryFolder = Annotated[
    Path | None, typer.Option("--history", help="Folder of earlier logs like --log, of the same metric.")
]
EpochsAt = Annotated[
    list[str] | None,
    typer.Option(
        "--epochs-at",
        metavar="BATCH=EPOCHS",
        help="BATCH=EPOCHS to target, once for each of two or more global batches, in place of --epochs.",
    ),
]
CriticalBatchSize = Annotated[
    float | None,
    typer.Option("--critical-batch", help="Global batch at which twice the least epochs are needed."),
]
ReferenceBatch = Annotated[
    int | None,
    typer.Option("--reference-batch", help="Global batch at which --epochs, --steps or --log hold."),
]
Startup = Annotated[
    float | None,
    typer.Option("--startup", parser=duration, help="From asking for machines to the first step."),
]
CheckpointEvery = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-every", parser=duration, help="Work between checkpoints; if not given, the best."
    ),
]
CheckpointRate = Annotated[
    float | None,
    typer.Option("--checkpoint-rate", parser=bandwidth, help="How fast they are written: 1GB/s."),
]
EvalSamples = Annotated[int | None, typer.Option("--eval-samples", help="Samples of each evaluation.")]
EvalEvery = Annotated[
    int | None,
    typer.Option("--eval-every", help="Steps between evaluations; if not given, an epoch, or the whole job."),
]
Spot = Annotated[bool, typer.Option("--spot", help="On spot machines: their price, and interruptions.")]
InterruptionsPerDay = Annotated[
    float | None, typer.Option("--interruptions-per-day", help="How often each machine is lost, spot or not.")
]
UsdPerHour = Annotated[
    float | None,
    typer.Option("--usd-per-hour", parser=money, help="What all machines cost together, if not the offer's."),
]
Region = Annotated[
    str | None, typer.Option("--region", help="Where it runs: a cloud's region, a country or a US state.")
]


@dataclass(frozen=True)
class Asked:
    """The length of a job, and how it is run."""

    length: LengthRequest
    running: JobOptions


def asked(arguments: Mapping[str, Any]) -> Asked | None:
    """The job among a command's arguments (pass `locals()`), or None if nothing says how long it is.

    Options that a command does not have count as not given.
    """
    from foretrain.errors import InvalidRequest
    from foretrain.jobs.job import JobOptions

    length, running = length_and_running(arguments)
    if length.is_known:
        return Asked(length, running)
    if running != JobOptions():
        raise InvalidRequest(
            "how a job is run matters once its length is known: give --steps, or --epochs with --samples, or "
            "--target with --log"
        )
    return None


def length_and_running(arguments: Mapping[str, Any]) -> tuple[LengthRequest, JobOptions]:
    """What a command's arguments say of a job, whether that is enough or not."""
    return _length(arguments), _running(arguments)


def _length(arguments: Mapping[str, Any]) -> LengthRequest:
    from foretrain.jobs.epochs_by_batch import parse_batch_point
    from foretrain.jobs.length import LengthRequest

    return LengthRequest(
        steps=arguments.get("steps"),
        epochs=arguments.get("epochs"),
        samples=arguments.get("samples"),
        log=_log(arguments),
        epochs_at=tuple(parse_batch_point(text) for text in arguments.get("epochs_at") or ()),
        critical_batch=arguments.get("critical_batch"),
        reference_batch=arguments.get("reference_batch"),
    )


def _log(arguments: Mapping[str, Any]) -> LogRequest | None:
    from foretrain.convergence.from_log import LogRequest
    from foretrain.errors import InvalidRequest

    log, target = arguments.get("log"), arguments.get("target")
    if (log is None) != (target is None):
        raise InvalidRequest(
            "--target and --log go together: what the job is to reach, and how it gets there"
        )
    more = {name: arguments.get(name) for name in ("planned_steps", "schedule", "history")}
    if log is not None and target is not None:
        return LogRequest(log, target, **more)
    if any(value is not None for value in more.values()):
        raise InvalidRequest(
            "--planned-steps, --schedule and --history are about a --log: give that and --target too"
        )
    return None


def _running(arguments: Mapping[str, Any]) -> JobOptions:
    from foretrain.errors import InvalidRequest
    from foretrain.jobs.job import JobOptions

    if arguments.get("eval_every") is not None and arguments.get("eval_samples") is None:
        raise InvalidRequest("--eval-every is about evaluations: say of how many samples, --eval-samples")
    return JobOptions(
        startup_seconds=arguments.get("startup"),
        checkpoint_every_seconds=arguments.get("checkpoint_every"),
        checkpoint_bytes_per_second=arguments.get("checkpoint_rate"),
        interruptions_per_day=arguments.get("interruptions_per_day"),
        spot=arguments.get("spot", False),
        usd_per_hour=arguments.get("usd_per_hour"),
        region=_region(arguments.get("region")),
        evaluation_samples=arguments.get("eval_samples"),
        evaluate_every=arguments.get("eval_every"),
    )


def _region(text: str | None) -> str | None:
    """The region as its provider spells it, where there is one of that name."""
    from foretrain.serving.cli.parameters import region_names

    found = region_names(text)
    return found[0] if len(found) == 1 else text


def answer(prediction: Prediction, job: Asked | None) -> Job | None:
    """The job of the request, by the prediction of its step."""
    if job is None:
        return None
    from foretrain.jobs.job import evaluated_each_epoch, job_of
    from foretrain.jobs.length import steps_of, with_staleness

    batch = prediction.update_batch
    steps = steps_of(job.length, batch)
    assert steps is not None, "an `Asked` has a length"
    running = evaluated_each_epoch(job.running, job.length.samples, batch)
    staleness = prediction.parallelism.staleness or 0.0
    return job_of(prediction, with_staleness(steps, staleness, job.length.is_to_a_target), running)
