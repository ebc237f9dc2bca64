"""What a campaign file says: the axes of a grid, how long each trial runs, how often, and in which order.

    name: batch sizes
    models:
      - mnist-cnn
      - {model: resnet18, image_size: 64, batch: 8}
    batch: 32..1024
    workers: [1, 2]
    strategy: [ddp, ps-sync]
    network: 200Mbit/s
    seconds: 3

An axis of a model takes the place of that axis of the whole campaign. With `command`, a trial runs that
command with `{batch}` and the like filled in.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from foretrain.decoding import (
    SECONDS,
    TEXT,
    OptionKind,
    Unreadable,
    choice,
    decode,
    option,
    read_mapping,
    texts,
    whole_number,
    whole_numbers,
)
from foretrain.errors import InvalidData, InvalidRequest, nearest
from foretrain.facts.devices import THIS_MACHINE
from foretrain.units import UnitError, parse_bandwidth, parse_bytes

STRATEGIES = ("ddp", "dp", "fsdp", "ps-sync", "ps-async")
"""What trials of models can run with more than one worker; commands may name any other."""
PRECISIONS = ("fp32", "bf16", "fp16")
UNCAPPED = "none"
_EXAMPLE = "name: first\\nmodels: mnist-cnn"


def _read_memory(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Unreadable
    size = parse_bytes(value) if isinstance(value, str) else float(value)
    if size <= 0:
        raise Unreadable
    return size


def _read_networks(value: Any) -> tuple[str, ...]:
    names = texts().read(["none" if item is None else item for item in _as_list(value)])
    for name in names:
        if name != UNCAPPED:
            parse_bandwidth(name)
    return tuple(names)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


_MEMORY = OptionKind("SIZE", "an amount of memory such as 2GB; numbers are bytes", _read_memory)
_NETWORKS = OptionKind("RATES", "rates such as 200Mbit/s, or none for no limit", _read_networks, many=True)


def _several(*allowed: str) -> OptionKind:
    """Several words of a few."""
    one = choice(*allowed)

    def read(value: Any) -> tuple[str, ...]:
        words = texts().read(value)
        for word in words:
            if word not in allowed:
                near = nearest(word, allowed)
                hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(allowed)}"
                raise Unreadable(f"{word!r} is unknown; {hint}")
        return tuple(words)

    return OptionKind("NAMES", f"{one.wanted}, or a list of them", read, many=True)


@dataclass(frozen=True, kw_only=True)
class Axes:
    """What a grid spans; None leaves an axis to the campaign, or to the model."""

    batch: tuple[int, ...] | None = option(whole_numbers(), "Samples per worker and step.")
    seq_len: tuple[int, ...] | None = option(whole_numbers(), "Tokens per sample.")
    image_size: tuple[int, ...] | None = option(whole_numbers(), "Image height and width in pixels.")
    precision: tuple[str, ...] | None = option(_several(*PRECISIONS), "fp32, bf16 or fp16.")
    optimizer: tuple[str, ...] | None = option(texts(), "Optimizers by name.")
    workers: tuple[int, ...] | None = option(whole_numbers(), "Numbers of workers.")
    strategy: tuple[str, ...] | None = option(texts(), "Strategies of more than one worker.")
    network: tuple[str, ...] | None = option(_NETWORKS, "Rate limits of each worker's network card.")


AXES = tuple(each.name for each in fields(Axes))


@dataclass(frozen=True, kw_only=True)
class ModelEntry(Axes):
    """A model, and axes of its own."""

    model: str = option(TEXT, "A model of the zoo.", required=True)


def _read_models(value: Any) -> tuple[ModelEntry, ...]:
    return tuple(entry for item in _as_list(value) for entry in _entries(item))


def _entries(item: Any) -> tuple[ModelEntry, ...]:
    if isinstance(item, str):
        return tuple(ModelEntry(model=name) for name in texts().read(item))
    if not isinstance(item, Mapping):
        raise Unreadable
    try:
        return (decode(ModelEntry, {str(key): value for key, value in item.items()}),)
    except InvalidRequest as reason:
        raise Unreadable(str(reason)) from reason


_MODELS = OptionKind("MODELS", "models by name, or entries such as {model: resnet18, batch: 8}", _read_models)


@dataclass(frozen=True, kw_only=True)
class Campaign(Axes):
    """A grid, or a sample of one, over models and settings, and how each trial is run.

    A trial takes `steps` steps, or as many as take about `seconds`. `memory` is the limit of what one worker
    may allocate. `order` is `random` by `seed`, or that of the `grid`.
    """

    name: str = option(TEXT, "Name of the campaign; with the same name it is resumed.", required=True)
    models: tuple[ModelEntry, ...] = option(_MODELS, "Models to train.", default=())
    command: str | None = option(TEXT, "A training command with {batch} and the like in place of models.")
    on: str = option(TEXT, "The device of each worker, for predictions.", default=THIS_MACHINE)
    sample: int | None = option(whole_number(1), "Trials drawn from the grid at random.")
    seed: int = option(whole_number(0), "Seed of the sample and of the order.", default=0)
    steps: int | None = option(whole_number(3), "Steps of a trial.")
    seconds: float = option(SECONDS, "About how long a trial trains, unless `steps` is given.", default=2.0)
    timeout: float = option(SECONDS, "A trial that takes longer is stopped.", default=120.0)
    repeats: int = option(whole_number(1), "How often each setting is run.", default=1)
    order: str = option(choice("random", "grid"), "Order of the trials.", default="random")
    memory: float | None = option(_MEMORY, "Memory that one worker may allocate.")


def read_campaign(file: Path) -> Campaign:
    """The campaign of a YAML file; an unknown key is an error that names a near one."""
    content = read_mapping(file, "campaign file", _EXAMPLE)
    campaign = decode(Campaign, content, file)
    problem = _problem(campaign)
    if problem:
        raise InvalidData(str(file), problem)
    return campaign


def _problem(campaign: Campaign) -> str:
    """What keeps a campaign from being run."""
    if not campaign.name.strip():
        return "`name` is empty; results are stored under it"
    if campaign.command is None:
        return _model_problem(campaign) if campaign.models else "names no models and no command"
    return _command_problem(campaign, campaign.command)


def _model_problem(campaign: Campaign) -> str:
    from foretrain.workloads.zoo import zoo

    for entry in campaign.models:
        if entry.model not in zoo():
            near = nearest(entry.model, zoo())
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            return f"`models`: trials train models of the zoo, not {entry.model!r}{hint}"
    for axes in (campaign, *campaign.models):
        for strategy in axes.strategy or ():
            if strategy not in STRATEGIES:
                return (
                    f"`strategy` is {strategy!r}; trials of models run {', '.join(STRATEGIES)}, "
                    "any other as a `command`"
                )
    return ""


def _command_problem(campaign: Campaign, command: str) -> str:
    try:
        names = {name.partition(".")[0] for _, name, _, _ in string.Formatter().parse(command) if name}
    except ValueError as error:
        return f"`command`: {error}; write {{{{ and }}}} for braces of the command itself"
    for name in sorted(names):
        if name not in (*AXES, "model", "repeat"):
            return f"`command` has {{{name}}}; known are {', '.join(('model', *AXES, 'repeat'))}"
        given = [axes for axes in (campaign, *campaign.models) if name in AXES and getattr(axes, name)]
        if name == "model" and not campaign.models:
            return "`command` has {model}, but `models` is empty"
        if name in AXES and not given:
            return f"`command` has {{{name}}}, but `{name}` is not given"
    return ""


def network_bytes_per_second(network: str | None) -> float | None:
    """The rate limit of a trial's network; None for no limit."""
    if network is None or network == UNCAPPED:
        return None
    try:
        return parse_bandwidth(network)
    except UnitError as error:
        raise InvalidRequest(f"`network`: {error}") from error
