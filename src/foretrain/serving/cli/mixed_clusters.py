"""`foretrain predict` on a cluster whose nodes differ: the split of the batch, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import typer

from foretrain.errors import EXIT_INFEASIBLE, Infeasible, InvalidRequest
from foretrain.facts.clusters import Cluster
from foretrain.facts.devices import device
from foretrain.jobs.epoch import Epoch, epoch_in_steps
from foretrain.jobs.job import Job
from foretrain.prediction.answer import MixedPrediction, Share
from foretrain.prediction.cost_models.step_models import CostModel, cost_model
from foretrain.prediction.heterogeneous.predict import MixedRequest, predict_mixed
from foretrain.prediction.many_devices import Parallelism
from foretrain.prediction.step.input_pipeline import InputOptions
from foretrain.serving.cli import job_options
from foretrain.serving.cli import workload_options as given
from foretrain.serving.cli.job_text import show_job, show_job_parts
from foretrain.serving.cli.prediction_text import (
    show_bottleneck,
    show_epoch,
    show_memory,
    show_memory_line,
    show_step,
    show_step_parts,
)
from foretrain.serving.cli.terminal import Column, print_json, print_line, print_table, spinner
from foretrain.units import format_bytes, format_duration


@dataclass(frozen=True)
class Asked:
    """What the command line asks of a cluster whose nodes differ."""

    options: dict[str, Any]
    cluster: Cluster
    model: CostModel | str
    parallelism: Parallelism
    input: InputOptions
    least_batch: int | None
    samples: int | None
    job: job_options.Asked | None = None


def predict_on_cluster(
    asked: Asked, equal_only: Mapping[str, object], advice: bool, json: bool, check: bool
) -> None:
    """Predict and print; `equal_only` are options that must not be given, by name."""
    for name, value in equal_only.items():
        if value is not None:
            raise InvalidRequest(f"{name} shows devices that all do the same: it wants equal nodes")
    with spinner("Predicting") as progress:
        progress("reading the model")
        workload = given.workload(asked.options)
        request = MixedRequest(
            workload=workload,
            cluster=asked.cluster,
            model=cost_model(asked.model, workload),
            parallelism=asked.parallelism,
            input=asked.input,
            least_batch=asked.least_batch,
        )
        progress("dividing the batch")
        answer = predict_mixed(request, advice)
    if isinstance(answer, Infeasible):
        _show_infeasible(answer, json)
        if check:
            raise typer.Exit(EXIT_INFEASIBLE)
        return
    epoch = None if asked.samples is None else _epoch(answer, asked.samples)
    job = job_options.answer(answer, asked.job)
    if json:
        more = {"epoch": epoch, "job": job}
        print_json(_as_object(answer) | {key: value for key, value in more.items() if value is not None})
    else:
        _show(answer, epoch, job)


def _epoch(answer: MixedPrediction, samples: int) -> Epoch:
    split = answer.split
    return epoch_in_steps(samples, split.global_batch, answer.step.seconds, split.moved_bytes)


def _show_infeasible(answer: Infeasible, json: bool) -> None:
    if json:
        print_json({"infeasible": answer})
    else:
        print_line(str(answer), "red")


def _show(prediction: MixedPrediction, epoch: Epoch | None, job: Job | None) -> None:
    cluster, split = prediction.cluster, prediction.split
    print_line(
        f"{prediction.workload.source.name} on {cluster.name}: {cluster.devices} devices in {cluster.nodes} "
        f"nodes that differ, {split.global_batch} samples in all",
        "bold",
    )
    network = ", ".join(f"{name} {where}" for where, name in split.network.items())
    print_line(f"Strategy: {prediction.strategy}" + (f"; slowest links: {network}" if network else ""))
    print_line(f"Verdict: {split.verdict}", "magenta")
    print_line()
    _show_shares(prediction)
    print_line()
    show_step(prediction)
    if epoch is not None:
        show_epoch(epoch)
    if job is not None:
        show_job(job)
    show_memory_line(prediction.memory, prediction.fullest)
    show_bottleneck(prediction.bottleneck, device(split.paced_by), "what if")
    for note in prediction.notes:
        print_line(f"Note: {note}", "yellow")
    if job is not None:
        show_job_parts(job)
    show_step_parts(prediction.step)
    show_memory(prediction.memory)


def _show_shares(prediction: MixedPrediction) -> None:
    print_table(
        [
            Column("nodes", least=16), Column("device"), Column("used", right=True),
            Column("batch of each", right=True), Column("samples", right=True),
            Column("step", right=True), Column("computing", right=True, expendable=2),
            Column("memory", right=True, expendable=1), Column("holds", right=True, expendable=3),
        ],
        [_share_row(share, prediction.split.global_batch) for share in prediction.split.shares],
    )  # fmt: skip


def _share_row(share: Share, global_batch: int) -> tuple[str, ...]:
    used = f"{share.nodes_used} of {share.nodes}"
    holds = f"{share.largest_batch}" + ("" if share.largest_batch < global_batch else " or more")
    if share.seconds is None or share.computing_seconds is None or share.memory_bytes is None:
        return share.group, share.device, used, "left out", "0", "", "", "", holds
    fewest, most = min(share.batches), max(share.batches)
    memory = format_bytes(share.memory_bytes)
    return (
        share.group,
        share.device,
        used,
        f"{most}" if fewest == most else f"{fewest} to {most}",
        f"{share.samples} ({share.samples / global_batch:.0%})",
        format_duration(share.seconds),
        format_duration(share.computing_seconds),
        f"{memory}, fits" if share.fits else f"{memory}: does not fit",
        holds,
    )


def _as_object(prediction: MixedPrediction) -> dict[str, Any]:
    cluster, split = prediction.cluster, prediction.split
    return {
        "workload": given.description(prediction.workload, split.global_batch, prediction.tokens),
        "hardware": {
            "name": cluster.name,
            "devices": cluster.devices,
            "nodes": cluster.nodes,
            "groups": [
                {
                    "name": label,
                    "device": group.device.id,
                    "devices_per_node": group.devices_per_node,
                    "nodes": group.nodes,
                }
                for label, group in zip(cluster.labels, cluster.groups, strict=True)
            ],
            "strategy": prediction.strategy,
        },
        "knowledge": prediction.knowledge,
        "step": prediction.step,
        "throughput": prediction.throughput,
        "memory": prediction.memory,
        "split": split,
        "bottleneck": prediction.bottleneck,
        "coverage": prediction.coverage,
        "sources": prediction.sources,
        "notes": prediction.notes,
    }
