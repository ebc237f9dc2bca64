"""From what a configuration says to options of a request, on a number of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from foretrain.errors import InvalidData
from foretrain.workloads.training_configs._base import TrainingConfig

_DEGREES = {"tp": "tensor", "cp": "context", "pp": "pipeline", "ep": "expert"}
_OF_LAYOUT = (
    *_DEGREES.values(), "sharding", "replicate", "shard", "schedule", "chunks", "sequence_parallel",
    "tensor_overlap",
)  # fmt: skip
_OF_BATCH = ("micro_batch", "accumulation", "global_batch")
_FULLY_SHARDED = ("fsdp", "zero3")


@dataclass(frozen=True)
class ConfiguredOption:
    """The value of an option, and the entries of a configuration that it follows from."""

    value: Any
    entries: tuple[str, ...]


@dataclass(frozen=True)
class ConfigReport:
    """What was made of a configuration: options taken, options replaced by given ones, entries ignored.

    `ignored` has a reason where there is more to say than that an entry has no effect.
    """

    file: str
    format: str
    taken: Mapping[str, ConfiguredOption]
    replaced: Mapping[str, ConfiguredOption]
    ignored: Mapping[str, str]

    def notes(self) -> Iterator[str]:
        """A sentence for each."""
        yield f"from {self.file} ({self.format}): {_listed(self.taken) or 'nothing'}"
        if self.replaced:
            yield f"given options replace those of {self.file}: {_listed(self.replaced)}"
        if explained := [f"{key} ({reason})" for key, reason in self.ignored.items() if reason]:
            yield f"entries of {self.file} with a remark: {'; '.join(explained)}"
        if plain := [key for key, reason in self.ignored.items() if not reason]:
            yield f"ignored entries of {self.file}: {', '.join(plain)}"


def _listed(group: Mapping[str, ConfiguredOption]) -> str:
    words = []
    for name, each in group.items():
        value = "on" if each.value is True else each.value
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        option = name if name == "model" else f"`{name}`"
        words.append(f"{option} {text}" + (f" ({', '.join(each.entries)})" if each.entries else ""))
    return "; ".join(words)


def options_on(
    config: TrainingConfig, devices: int | None, with_batch: bool = True
) -> tuple[dict[str, ConfiguredOption], dict[str, str]]:
    """The options of a configuration on some devices, and the entries that are ignored.

    Without a number of devices, or `with_batch`, what depends on it is left out.
    """
    settings = dict(config.settings)
    ignored = dict(config.ignored)
    options: dict[str, ConfiguredOption] = {}

    def give(option: str, value: Any, *names: str) -> None:
        keys = (key for name in names for key in config.entries.get(name, ()))
        options[option] = ConfiguredOption(value, tuple(dict.fromkeys(keys)))

    if layout := _layout_text(config, devices):
        give("strategy", layout, *_OF_LAYOUT)
    batches = _batches(config, devices) if with_batch else {}
    for option, value in batches.items():
        give(option, value, *_OF_BATCH)
    if not with_batch:
        keys = [key for name in _OF_BATCH for key in config.entries.get(name, ())]
        ignored |= dict.fromkeys(keys, "replaced by the batch that is given")
    elif not {"batch", "micro_batches"} & batches.keys():
        ignored |= dict.fromkeys(config.entries.get("micro_batch", ()), "chosen for each machine")
    meant = settings.pop("devices", None)
    if meant != devices:
        ignored |= dict.fromkeys(config.entries.get("devices", ()), "the devices asked for count")
    if "steps" in settings:
        settings.pop("epochs", None)
    for name, value in settings.items():
        if name not in (*_OF_LAYOUT, *_OF_BATCH):
            give(name, value, name)
    return options, ignored


def _layout_text(config: TrainingConfig, devices: int | None) -> str:
    """The strategy as it is written; nothing where the configuration says nothing of it."""
    settings = config.settings
    if not any(name in settings for name in _OF_LAYOUT):
        return ""
    degrees = {key: settings[name] for key, name in _DEGREES.items() if settings.get(name, 1) > 1}
    sharding, shard = settings.get("sharding", "ddp"), settings.get("shard")
    replicate = settings.get("replicate", 1)
    if replicate > 1 and shard is None and devices is not None:
        others = replicate * _model_degree(settings)
        if devices % others:
            raise InvalidData(
                str(config.file), f"divides the model by {others}, which does not divide {devices} devices"
            )
        shard = devices // others
    if not degrees and (shard is None or replicate == 1):
        return str(sharding)
    return ",".join(
        (*(f"{key}={degree}" for key, degree in degrees.items()), *_rest(settings, sharding, shard))
    )


def _rest(settings: Mapping[str, Any], sharding: str, shard: int | None) -> Iterator[str]:
    stage = "3" if sharding in (*_FULLY_SHARDED, "hsdp") else sharding.removeprefix("zero")
    if stage.isdecimal():
        yield f"zero={stage}"
        if shard is not None and settings.get("replicate", 1) > 1:
            yield f"shard={shard}"
    if settings.get("pipeline", 1) > 1:
        if "schedule" in settings:
            yield f"schedule={settings['schedule']}"
        if settings.get("chunks", 1) > 1:
            yield f"chunks={settings['chunks']}"
    if settings.get("tensor", 1) > 1:
        if settings.get("sequence_parallel") is False:
            yield "sp=no"
        if settings.get("tensor_overlap"):
            yield "tp-overlap=yes"


def _model_degree(settings: Mapping[str, Any]) -> int:
    """Devices that hold one copy of the model."""
    degree = 1
    for name in ("tensor", "context", "pipeline"):
        degree *= settings.get(name, 1)
    return degree


def _batches(config: TrainingConfig, devices: int | None) -> dict[str, int]:
    """The batch of each replica or of all, and its micro-batches."""
    settings = config.settings
    micro, rounds, whole = (settings.get(name) for name in _OF_BATCH)
    if whole is None:
        if micro is None:
            return {} if rounds is None else {"micro_batches": rounds}
        return {"batch": micro * (rounds or 1), "micro_batches": rounds or 1}
    degree = _model_degree(settings)
    if devices is None or devices % degree:
        return {"global_batch": whole}
    replicas = devices // degree
    if rounds is None and micro is not None:
        rounds, left = divmod(whole, micro * replicas)
        if left or not rounds:
            raise _contradiction(config, f"{whole} is not a multiple of {micro} samples on {replicas}")
    elif rounds is not None and micro is not None and whole != micro * rounds * replicas:
        raise _contradiction(config, f"{whole} is not {micro} samples in {rounds} rounds on {replicas}")
    return {"global_batch": whole} if rounds is None else {"global_batch": whole, "micro_batches": rounds}


def _contradiction(config: TrainingConfig, why: str) -> InvalidData:
    keys = " and ".join(f"`{key}`" for name in _OF_BATCH for key in config.entries.get(name, ()))
    return InvalidData(
        str(config.file),
        f"{keys} do not agree: {why} replicas; change one, or give `batch` or `global_batch`",
    )
