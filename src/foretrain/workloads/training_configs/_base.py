"""What every format of training configuration shares: reading entries, and what was made of them.

A format reads entries by name (`ConfigReading.whole("seq_len")`), and sets what they mean (`set`). Entries
that it does not read are ignored, and listed as such. Two entries that mean different things are an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from foretrain.errors import InvalidData, MissingData, nearest
from foretrain.registry import normalise

AUTO = "auto"
"""In configurations of DeepSpeed: as the program that starts it has it."""
OPTIMIZERS: Mapping[str, str] = {
    "adam": "adam",
    "adamw": "adamw",
    "adamw-torch": "adamw",
    "adamw-hf": "adamw",
    "adamw-torch-fused": "adamw-fused",
    "adamw-apex-fused": "adamw-fused",
    "adamw-torch-8bit": "adamw-8bit",
    "adamw-bnb-8bit": "adamw-8bit",
    "adamw-8bit": "adamw-8bit",
    "paged-adamw": "paged-adamw",
    "paged-adamw-32bit": "paged-adamw",
    "paged-adamw-8bit": "paged-adamw-8bit",
    "lion": "lion",
    "lion-pytorch": "lion",
    "lion-32bit": "lion",
    "lion-8bit": "lion-8bit",
    "paged-lion-8bit": "paged-lion-8bit",
    "adafactor": "adafactor",
    "adagrad": "adagrad",
    "rmsprop": "rmsprop",
    "sgd": "sgd",
    "muon": "muon",
}
"""Optimizers as the libraries spell them, normalised, and as foretrain does."""
ATTENTIONS: Mapping[str, str] = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash": "flash2",
    "flash-attention-2": "flash2",
    "flash-attention-3": "flash3",
    "kernels-community-flash-attn2": "flash2",
    "kernels-community-flash-attn3": "flash3",
}
"""Attention as Hugging Face libraries spell it, normalised."""
_NOT_MODELLED = "not modelled"
_NO_EFFECT = ""


@final
@dataclass(frozen=True)
class TrainingConfig:
    """What a configuration file says: `settings` by name, each with the entries it follows from.

    Settings are options of requests, and those that become options together with the number of devices:
    `micro_batch` (samples of a device between two accumulations), `accumulation`, `global_batch`, `sharding`
    (a strategy by its word), `tensor`, `context`, `pipeline`, `expert`, `replicate`, `shard`, `devices`.
    `ignored` are entries without effect, with the reason where there is more to say.
    """

    file: Path
    format: str
    settings: Mapping[str, Any]
    entries: Mapping[str, tuple[str, ...]]
    ignored: Mapping[str, str]


class ConfigReading:
    """One file that is being read: its entries by dotted name, and what they mean so far."""

    def __init__(self, file: Path, content: Mapping[str, Any]) -> None:
        self.file = file
        self.values = _flatten(content)
        self.settings: dict[str, Any] = {}
        self.entries: dict[str, tuple[str, ...]] = {}
        self.reasons: dict[str, str] = {}
        self._read: set[str] = set()

    def fail(self, message: str) -> InvalidData:
        """The error of this file."""
        return InvalidData(str(self.file), message)

    def get(self, key: str) -> Any:
        """The entry, or None; it counts as read."""
        self._read.add(key)
        value = self.values.get(key)
        return None if isinstance(value, str) and value.strip() in ("", AUTO, "null", "None") else value

    def whole(self, key: str) -> int | None:
        """A whole number above 0; frameworks write -1 or 0 for what is not set."""
        value = self.get(key)
        if isinstance(value, str) and value.strip().lstrip("-").isdecimal():
            value = int(value)
        if isinstance(value, float) and value == int(value):
            value = int(value)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(f"`{key}` is {value!r}; it must be a whole number")
        return value if value > 0 else None

    def switch(self, key: str) -> bool | None:
        """True or false."""
        value = self.get(key)
        if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no", "1", "0"):
            value = value.lower() in ("true", "yes", "1")
        if value is None or isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        raise self.fail(f"`{key}` is {value!r}; it must be true or false")

    def text(self, key: str) -> str | None:
        """A word or name."""
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self.fail(f"`{key}` is {value!r}; it must be text")

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words, or text with spaces or commas between them."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, str):
            return tuple(value.replace(",", " ").split())
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return tuple(value)
        raise self.fail(f"`{key}` is {value!r}; it must be a list of words")

    def word(self, key: str, meanings: Mapping[str, str], option: str) -> None:
        """Set an option to the meaning of a word; words without one are ignored, with a remark."""
        text = self.text(key)
        if text is None:
            return
        meaning = meanings.get(normalise(text.split(".")[-1]))
        if meaning is None:
            near = nearest(normalise(text), tuple(meanings))
            hint = f"; near is {near[0]}" if near else ""
            self.ignore(key, f"{text} is {_NOT_MODELLED}{hint}: give `{option}`")
        else:
            self.set(option, meaning, key)

    def set(self, setting: str, value: Any, *keys: str) -> None:
        """What some entries mean; another meaning of the same from other entries is a contradiction."""
        if value is None:
            return
        if setting in self.settings and self.settings[setting] != value:
            raise self.fail(
                f"contradicts itself in {setting.replace('_', ' ')}: {_quote(self.entries[setting])} means "
                f"{self.settings[setting]}, {_quote(keys)} means {value}; change one"
            )
        self.settings[setting] = value
        self.entries[setting] = tuple(dict.fromkeys((*self.entries.get(setting, ()), *keys)))

    def ignore(self, key: str, reason: str) -> None:
        """An entry that is not used, and why."""
        if self.values.get(key) is not None:
            self.reasons[key] = reason

    def include(self, other: ConfigReading, name: str) -> None:
        """What another file, named by the entry `name`, says."""
        for setting, value in other.settings.items():
            self.set(setting, value, *(f"{name}: {key}" for key in other.entries[setting]))
        for key, reason in other.ignored().items():
            self.values[f"{name}: {key}"] = other.values.get(key)
            self.reasons[f"{name}: {key}"] = reason

    def ignored(self) -> dict[str, str]:
        """Entries with a value that nothing was made of."""
        used = {key for keys in self.entries.values() for key in keys}
        unread = {key: _NO_EFFECT for key, value in self.values.items() if value is not None}
        return {
            key: self.reasons.get(key, reason)
            for key, reason in unread.items()
            if key in self.reasons or (key not in used and key not in self._read)
        }

    def beside(self, name: str, what: str) -> Path:
        """A file that an entry names: beside this one, or in the current folder."""
        for path in (self.file.parent / name, Path(name).expanduser()):
            if path.is_file():
                return path
        raise MissingData(
            f"{self.file} names the {what} {name!r}, which is neither beside it nor in the current folder; "
            "put it there, or remove the entry and give its options yourself"
        )


def read_half(reading: ConfigReading, bf16: str, fp16: str) -> str | None:
    """The half precision that is switched on, which is at most one; None for neither."""
    uses_bf16, uses_fp16 = reading.switch(bf16), reading.switch(fp16)
    if uses_bf16 and uses_fp16:
        raise reading.fail(f"switches on both `{bf16}` and `{fp16}`; switch one of them off")
    if uses_bf16:
        reading.set("precision", "bf16", bf16)
    if uses_fp16:
        reading.set("precision", "fp16", fp16)
    return "bf16" if uses_bf16 else "fp16" if uses_fp16 else None


def read_fsdp(reading: ConfigReading, section: str, switched_on_by: str) -> None:
    """FSDP as Hugging Face libraries configure it, in a section whose entries may begin with `fsdp_`."""

    def named(name: str) -> str:
        keys = (f"{section}.fsdp_{name}", f"{section}.{name}")
        return next((key for key in keys if key in reading.values), keys[0])

    sharding, reshard = named("sharding_strategy"), named("reshard_after_forward")
    offload, checkpointing = named("offload_params"), named("activation_checkpointing")
    key = sharding if reading.values.get(sharding) is not None else reshard
    kind = reading.get(key)
    meaning = "fsdp" if kind is None else _FSDP_KINDS.get(normalise(str(kind)))
    if meaning is None:
        raise reading.fail(f"`{key}` is {kind!r}, which is not modelled; known are {', '.join(_FSDP_KINDS)}")
    reading.set("sharding", meaning, switched_on_by if kind is None else key)
    if reading.switch(offload):
        reading.set("offload", ("parameters",), offload)
    if reading.switch(checkpointing):
        reading.set("checkpoint_activations", True, checkpointing)


_FSDP_KINDS = {
    "full-shard": "fsdp", "1": "fsdp", "true": "fsdp",
    "shard-grad-op": "zero2", "2": "zero2", "false": "zero2",
    "no-shard": "ddp", "3": "ddp", "hybrid-shard": "hsdp", "4": "hsdp",
}  # fmt: skip
"""Sharding strategies by name and number; that of FSDP 2 is whether it frees parameters after forward."""


def lora_text(rank: int, targets: tuple[str, ...], *, flags: Mapping[str, bool | None]) -> str:
    """The option `lora`, as it is written."""
    chosen = f"targets={'+'.join(targets)}" if targets else ""
    return ",".join(filter(None, (f"r={rank}", chosen, *(name for name, is_on in flags.items() if is_on))))


class ConfigFormat(ABC):
    """A kind of configuration file. Final classes are stateless and have one file each in this folder.

    `framework` is what trains, `suffixes` are usual ends of file names, `example` holds a few lines that are
    recognised (in the form of the first suffix), `documentation` is where entries are described.
    """

    name: ClassVar[str]
    framework: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]
    example: ClassVar[str]
    documentation: ClassVar[str]

    @abstractmethod
    def recognises(self, content: Mapping[str, Any]) -> bool:
        """Whether the entries, as they stand in the file, are of this kind."""

    @abstractmethod
    def read(self, reading: ConfigReading) -> None:
        """Set what the entries mean."""

    def entries(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """The entries under the names that `read` knows."""
        return content


def _flatten(content: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _quote(keys: tuple[str, ...]) -> str:
    return " and ".join(f"`{key}`" for key in keys)
