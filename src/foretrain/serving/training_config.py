"""Requests from a training configuration (`--from`), and what an answer says about it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretrain.decoding import Option, options, values
from foretrain.errors import InvalidData, InvalidRequest
from foretrain.workloads.training_configs import (
    ConfigReport,
    ConfiguredOption,
    TrainingConfig,
    options_on,
    read_training_config,
)

_BATCH = ("batch", "global_batch")


def configured_values(cls: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a request that its configuration gives; `given` are those that were given."""
    config = read_training_config(given["from_config"])
    with_batch = all(given.get(name) is None for name in _BATCH)
    taken, ignored = _configured(cls, config, given, with_batch)
    if "model" not in taken and "model" not in given:
        reason = next((f" ({why})" for why in ignored.values() if why.endswith("give `model`")), "")
        raise InvalidRequest(
            f"the {config.format} configuration {config.file} names no known model{reason}: give `model`"
        )
    return values(cls, {name: each.value for name, each in taken.items()})


def report_on(request: Any, file: Path) -> ConfigReport:
    """What a request has from its configuration, what given options replace in it, and what is ignored."""
    config, cls = read_training_config(file), type(request)
    given = {each.name: getattr(request, each.name) for each in options(cls)}
    try:
        meant, ignored = _configured(cls, config, given, with_batch=True)
        keeps_batch = all(name not in meant or meant[name].value == given[name] for name in _BATCH)
    except InvalidData:  # batches that do not agree, replaced by one that was given
        keeps_batch = False
    if not keeps_batch:
        meant, ignored = _configured(cls, config, given, with_batch=False)
    checked = values(cls, {name: each.value for name, each in meant.items()})
    taken = {name: meant[name] for name, value in checked.items() if given[name] == value}
    replaced = {name: each for name, each in meant.items() if name not in taken}
    return ConfigReport(file.name, config.format, taken, replaced, ignored)


def _configured(
    cls: type[Any], config: TrainingConfig, given: Mapping[str, Any], with_batch: bool
) -> tuple[dict[str, ConfiguredOption], dict[str, str]]:
    """The options of a configuration that a request has, and what is ignored."""
    known = {each.name: each for each in options(cls)}
    devices = None
    if given.get("on") is not None:
        from foretrain.facts.hardware import cluster

        devices = cluster(given["on"]).devices
    every, ignored = options_on(config, devices, with_batch)
    taken = {}
    for name, each in every.items():
        reason = _refusal(name, each.value, known, given)
        if reason is None:
            taken[name] = each
        else:
            ignored |= dict.fromkeys(each.entries, reason)
    return taken, ignored


def _refusal(name: str, value: Any, known: Mapping[str, Option], given: Mapping[str, Any]) -> str | None:
    """Why an option of a configuration is not taken; None if it is."""
    if name not in known:
        return ""
    if name == "epochs" and given.get("samples") is None:
        return "needs the samples of an epoch: give `samples`"
    if name == "strategy" and known[name].kind.many:
        from foretrain.prediction.strategies.strategy import plan_word_of, plan_words

        if plan_word_of(value) not in plan_words():
            return f"{value} is not one of the strategies that are compared; see `layouts`"
    return None
