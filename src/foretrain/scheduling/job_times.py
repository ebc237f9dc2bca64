"""How long a job takes on every node type and number of GPUs: predicted by the jobs layer.

Each configuration is predicted in its best strategy and batch size (`jobs.configurations`), as the whole job
with its evaluations, but without start-up, checkpoints and interruptions: those of a schedule are counted
when they happen. Numbers of GPUs are the powers of two and whole nodes; several nodes only for jobs that may
span them, and where the network between nodes is known. What does not fit is left out with the reason.

Predictions are kept on disk by content: everything the job says, the nodes, foretrain itself and what it has
learned on this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foretrain.estimates import Quantiles
from foretrain.facts.hardware import Hardware
from foretrain.jobs.batch_limits import largest_batch
from foretrain.jobs.configurations import (
    NoConfiguration,
    RunConfiguration,
    configuration_space,
    configure,
)
from foretrain.jobs.job import evaluate_each_epoch, job_time
from foretrain.jobs.length import Length
from foretrain.jobs.options import BatchLimits, JobOptions
from foretrain.prediction.corrections.apply import resolve_cost_model
from foretrain.prediction.cost_models import CostModel
from foretrain.prediction.kept import keep_result, kept_file, read_result
from foretrain.prediction.operators.pricing import DEFAULT
from foretrain.prediction.options import InputOptions
from foretrain.prediction.strategies.strategy import plan_words
from foretrain.scheduling.files import JobTimes, middle_spread
from foretrain.scheduling.problem import Configuration
from foretrain.units import format_bytes
from foretrain.workloads.workload import Workload, content_key


@dataclass(frozen=True)
class Training:
    """What a job trains, for how long, and within which limits its configuration may be chosen."""

    workload: Workload
    length: Length
    limits: BatchLimits = field(default_factory=BatchLimits)
    strategies: tuple[str, ...] = ()
    model: CostModel | str = DEFAULT
    input: InputOptions = field(default_factory=InputOptions)
    options: JobOptions = field(default_factory=JobOptions)


def node_counts(node: Hardware, max_nodes: int) -> Iterator[tuple[int, int]]:
    """The (GPUs, nodes) to predict: powers of two on one node, whole nodes, and several whole nodes."""
    whole = node.devices_per_node
    counts = {whole, *(1 << power for power in range(whole.bit_length()))}
    yield from ((count, 1) for count in sorted(counts) if count <= whole)
    is_joined = node.network is not None or (node.node is not None and node.node.inter is not None)
    if is_joined:
        yield from ((whole, nodes) for nodes in range(2, max_nodes + 1))


def machine(node: Hardware, gpus: int, nodes: int) -> Hardware:
    """`gpus` devices of each of `nodes` nodes."""
    base = node.offer.instance if node.offer is not None else node.device.id
    return replace(node, name=f"{base}:{gpus}x{nodes}", devices_per_node=gpus, nodes=nodes)


def predicted_times(
    training: Training,
    nodes: Mapping[str, Hardware],
    max_nodes: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> JobTimes:
    """The times of a job on nodes of each type."""
    wanted = {
        Configuration(name, gpus, count): machine(node, gpus, count)
        for name, node in nodes.items()
        for gpus, count in node_counts(node, max_nodes)
    }
    machines = {_identity(each): each for each in wanted.values()}
    answers = dict(zip(machines, _answers(training, machines, progress), strict=True))
    seconds: dict[Configuration, float] = {}
    relative: list[tuple[float, float]] = []
    left_out: dict[Configuration, str] = {}
    for configuration, each in wanted.items():
        answer = answers[_identity(each)]
        if isinstance(answer, str):
            left_out[configuration] = answer
        else:
            seconds[configuration] = answer.p50
            relative.append((answer.p10 / answer.p50, answer.p90 / answer.p50))
    return JobTimes(seconds, middle_spread(relative), left_out)


def _identity(each: Hardware) -> tuple[Any, ...]:
    """What a prediction depends on: two types with the same GPUs and links have the same times."""
    node = None if each.node is None else each.node.id
    return each.device.id, each.devices_per_node, each.nodes, node, each.links, each.network


def _predict_times(
    training: Training, machines: list[Hardware], progress: Callable[[str], None]
) -> Iterable[Quantiles | str]:
    """The time of the job on each machine, or why it does not fit."""
    limits = training.limits.up_to(largest_batch(training.workload, training.length.epoch_samples))
    strategies = training.strategies or plan_words()
    model = resolve_cost_model(training.model, training.workload)
    space = configuration_space(
        training.workload, machines, training.length, limits, strategies, model, training.input
    )
    for number, each in enumerate(machines, 1):
        progress(f"{training.workload.source.name} on {each.name} ({number} of {len(machines)})")
        answer = configure(space, each)
        if isinstance(answer, NoConfiguration):
            yield _why(answer)
        else:
            yield _job_seconds(training, answer.configuration, each)


def _why(answer: NoConfiguration) -> str:
    if answer.needed_bytes is None or answer.capacity_bytes is None:
        return answer.reason
    return (
        f"{answer.reason} ({format_bytes(answer.needed_bytes)} of {format_bytes(answer.capacity_bytes)} "
        "at the smallest batch)"
    )


def _job_seconds(training: Training, configuration: RunConfiguration, on: Hardware) -> Quantiles:
    options = replace(
        evaluate_each_epoch(training.options, training.length.epoch_samples, configuration.global_batch),
        startup=0.0,
        interruptions_per_day=0.0,
    )
    steps = configuration.job_steps
    return job_time(configuration.step, steps, on.devices, on.nodes, options).seconds


# ---------------------------------------------------------------- kept on disk


def _cache_file(training: Training, machines: Mapping[tuple[Any, ...], Hardware]) -> Path | None:
    """Where the times on these machines are kept; None where what they depend on cannot be written down."""
    key = content_key(training.workload)
    if key is None or not isinstance(training.model, str):
        return None
    return kept_file(
        "job-times",
        key,
        training.length,
        training.limits,
        training.strategies,
        training.model,
        training.input,
        training.options,
        tuple(machines),
    )


def _answers(
    training: Training, machines: Mapping[tuple[Any, ...], Hardware], progress: Callable[[str], None]
) -> list[Quantiles | str]:
    """The time on each machine, predicted if it is not kept yet."""
    file = _cache_file(training, machines)
    if file is not None:
        with suppress(ValueError, TypeError):
            stored = read_result(file)
            return [each if isinstance(each, str) else Quantiles(*map(float, each)) for each in stored]
    answers = list(_predict_times(training, list(machines.values()), progress))
    if file is not None:
        plain = [each if isinstance(each, str) else (each.p10, each.p50, each.p90) for each in answers]
        keep_result(file, plain)
    return answers
