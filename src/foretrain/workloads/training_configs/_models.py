"""The model that a configuration names: of the zoo where it is one, else of the Hugging Face cache."""

from __future__ import annotations

import re
from collections.abc import Mapping

from foretrain.workloads.training_configs._base import ConfigReading
from foretrain.workloads.zoo import zoo

_ENDINGS = re.compile(
    r"-(instruct|it|chat|base|hf|pt|fp16|bf16|fp32|bnb-4bit|unsloth|v\d+(\.\d+)*)$", re.IGNORECASE
)
"""Of checkpoints that have the architecture of what stands before."""


def set_hub_model(reading: ConfigReading, key: str) -> None:
    """The model of an entry such as `meta-llama/Meta-Llama-3-8B`, or a folder with a config.json."""
    named = reading.text(key)
    if named is None:
        return
    folder = reading.file.parent / named
    if (folder / "config.json").is_file():
        reading.set("model", f"hf:{folder}", key)
        return
    name = named.rpartition("/")[2]
    while name not in zoo() and _ENDINGS.search(name):
        name = _ENDINGS.sub("", name)
    known = next((each for each in (name, name.lower().removeprefix("meta-")) if each in zoo()), None)
    reading.set("model", f"hf:{named}" if known is None else zoo()[known].name, key)


def set_flavor(reading: ConfigReading, name_key: str, flavor_key: str) -> None:
    """The model of a family and a flavor, such as `llama3` and `8B`."""
    family, flavor = reading.text(name_key), reading.text(flavor_key)
    if family is None or flavor is None:
        return
    entry = zoo().find(f"{family}-{flavor}")
    if entry is None:
        reading.ignore(name_key, "")
        reading.ignore(flavor_key, f"the zoo has no {family} of flavor {flavor}: give `model`")
    else:
        reading.set("model", entry.name, name_key, flavor_key)


def set_model_of_sizes(
    reading: ConfigReading, builder: str, keys: Mapping[str, str], sizes: Mapping[str, int]
) -> None:
    """The model of the zoo that a builder makes in these sizes; `keys` are their entries by name of size."""
    same = [
        entry.name
        for entry in zoo().values()
        if entry.builder.endswith(f":{builder}")
        and all(_size(entry.config, name) == size for name, size in sizes.items())
    ]
    given = [keys[name] for name in sizes if reading.values.get(keys[name]) is not None]
    if same:
        reading.set("model", same[0], *given)
        return
    words = ", ".join(f"{key} {reading.values[key]}" for key in given)
    for key in given:
        reading.ignore(key, "")
    reading.ignore(given[0], f"no model of the zoo has {words}: give `model`")


def _size(config: Mapping[str, int], name: str) -> int | None:
    """A size of a zoo entry; what it leaves out is as usual."""
    usual = {"kv_heads": config["heads"], "hidden": 4 * config["width"], "experts": 0}
    return config.get(name, usual.get(name))
