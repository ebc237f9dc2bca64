"""Configuration files of training frameworks: what they say about a step, in foretrain's words.

`read_training_config(file)` recognises the format by its entries and reads it. A new format is one new file
with a final `ConfigFormat`; `registry.discover` finds it.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from foretrain.decoding import parse_mapping
from foretrain.errors import InvalidData, MissingData
from foretrain.registry import Registry, discover
from foretrain.workloads.training_configs._base import ConfigFormat, ConfigReading, TrainingConfig
from foretrain.workloads.training_configs._options import ConfigReport, ConfiguredOption, options_on
from foretrain.workloads.training_configs._shell import read_arguments

__all__ = [
    "ConfigFormat",
    "ConfigReport",
    "ConfiguredOption",
    "TrainingConfig",
    "config_formats",
    "options_on",
    "read_training_config",
]


@cache
def config_formats() -> Registry[ConfigFormat]:
    """All formats, by name."""
    return Registry(
        "format of configuration",
        discover(__name__, ConfigFormat),  # type: ignore[type-abstract]
        name=lambda each: each.name,
    )


def read_training_config(file: Path) -> TrainingConfig:
    """What a configuration file says; a file of no known format, or of several, is an error."""
    content = _parse(file)
    kinds = [each for each in config_formats().values() if each.recognises(content)]
    if len(kinds) != 1:
        keys = ", ".join(list(map(str, content))[:8]) or "nothing"
        known = ", ".join(config_formats())
        problem = (
            f"is not a training configuration of a known format ({known}); it has {keys}"
            if not kinds
            else f"could be of {' or '.join(each.name for each in kinds)}; remove the entries of the others"
        )
        raise InvalidData(str(file), problem)
    reading = ConfigReading(file, kinds[0].entries(content))
    kinds[0].read(reading)
    return TrainingConfig(file, kinds[0].name, reading.settings, reading.entries, reading.ignored())


def _parse(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        problem = "is a folder" if file.is_dir() else "does not exist"
        raise MissingData(f"the training configuration {str(file)!r} {problem}")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(str(file), f"is not text: {error}") from error
    suffix = file.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return parse_mapping(text, file, "base_model: ORG/NAME")
    if suffix not in (".json", ".toml"):
        return read_arguments(text, file)
    try:
        content = json.loads(text) if suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise InvalidData(str(file), f"is not {suffix[1:].upper()}: {error}") from error
    if isinstance(content, list) and all(isinstance(each, str) for each in content):
        return read_arguments("\n".join(f"{json.dumps(each)} \\" for each in content), file)
    if not isinstance(content, dict):
        raise InvalidData(str(file), "is not an object of entries by name")
    return content
