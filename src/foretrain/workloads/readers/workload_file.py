"""`FILE.yaml`: a model together with how it is trained, as defaults for what the request leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.lora import LoraOptions, parse_lora
from foretrain.workloads.options import ATTENTIONS, PRECISIONS
from foretrain.workloads.readers._base import ModelSource, digest, existing_file
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

_COUNTS = ("batch", "global_batch", "micro_batches", "samples", "epochs", "steps", "seq_len", "image_size")
_SWITCHES = (
    "channels_last",
    "compile",
    "cuda_graphs",
    "checkpoint_activations",
    "half_weights",
    "full_gradients",
)
_CHOICES = {"precision": PRECISIONS, "attention": ATTENTIONS}


@dataclass(frozen=True)
class WorkloadFile:
    """What a workload file says; None where it says nothing.

    `batch` counts the samples of one device, `global_batch` those of all; `samples` is the size of the data
    set, of which `epochs` passes are made, or `steps` are taken in all. `optimizer` and `strategy` are
    resolved by those who know them.
    """

    model: str
    batch: int | None = None
    global_batch: int | None = None
    micro_batches: int | None = None
    samples: int | None = None
    epochs: int | None = None
    steps: int | None = None
    seq_len: int | None = None
    image_size: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    strategy: str | None = None
    attention: str | None = None
    target: str | None = None
    channels_last: bool | None = None
    compile: bool | None = None
    cuda_graphs: bool | None = None
    checkpoint_activations: bool | None = None
    half_weights: bool | None = None
    full_gradients: bool | None = None
    lora: LoraOptions | None = None


@dataclass(frozen=True)
class WorkloadFileSource(ModelSource):
    """The model that a workload file names, built at the file's sizes where the request gives none.

    LoRA is not applied here but, like the other defaults, by whoever makes the workload.
    """

    name: str
    workload: WorkloadFile
    source: ModelSource
    runs_user_code: bool
    kind: str = field(default="workload file", init=False)

    def fingerprint(self) -> str:
        sizes = {
            size: str(getattr(self.workload, size))
            for size in ("batch", "seq_len", "image_size", "attention")
        }
        return digest({"model": self.source.fingerprint(), **sizes})

    def example(self, options: BuildOptions) -> Example:
        return self.source.example(self._completed(options))

    def _completed(self, options: BuildOptions) -> BuildOptions:
        """The options with the file's sizes where they have none."""
        defaults = {
            size: getattr(self.workload, size)
            for size in ("batch", "seq_len", "image_size")
            if getattr(options, size) is None
        }
        if options.attention == BuildOptions().attention and self.workload.attention is not None:
            defaults["attention"] = self.workload.attention
        return replace(options, **defaults)


def read_workload(path: Path) -> WorkloadFile:
    """The contents of a workload file, checked; a model given as a file is looked for beside it."""
    file = existing_file(path, "workload file")
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidData(str(file), f"is not text: {error}") from error
    return parse_workload(text, file)


def parse_workload(text: str, file: Path) -> WorkloadFile:
    """The same from the text of the file."""
    import yaml

    try:
        entries = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidData(str(file), f"is not YAML: {error}") from error
    if not isinstance(entries, Mapping):
        raise InvalidData(str(file), "is not a list of `key: value` lines; the least is `model: resnet50`")
    return _checked(dict(entries), file)


def _checked(entries: dict[Any, Any], file: Path) -> WorkloadFile:
    known = [item.name for item in fields(WorkloadFile)]
    for key in entries:
        if key not in known:
            raise UnknownName("key of a workload file", str(key), known, f"Keys: {', '.join(known)}.")
    if not isinstance(entries.get("model"), str):
        raise InvalidData(str(file), "names no model; add a line such as `model: resnet50`")
    if entries.get("batch") is not None and entries.get("global_batch") is not None:
        raise InvalidData(str(file), "gives both batch (per device) and global_batch; keep one")
    checked = {key: _value(key, value, file) for key, value in entries.items() if value is not None}
    checked["model"] = _beside(checked["model"], file.parent)
    return WorkloadFile(**checked)


def _value(key: str, value: Any, file: Path) -> Any:
    if key in _COUNTS:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InvalidData(str(file), f"{key} is {value!r}; it must be a whole number of at least 1")
        return value
    if key in _SWITCHES:
        if not isinstance(value, bool):
            raise InvalidData(str(file), f"{key} is {value!r}; it must be true or false")
        return value
    if not isinstance(value, str):
        raise InvalidData(str(file), f"{key} is {value!r}; it must be text")
    if key in _CHOICES and value not in _CHOICES[key]:
        raise InvalidData(str(file), f"{key} is {value!r}; it must be one of {', '.join(_CHOICES[key])}")
    return parse_lora(value) if key == "lora" else value


def _beside(model: str, folder: Path) -> str:
    """A model with a file's path made relative to where the workload file lies."""
    prefix, path = ("hf:", model[3:]) if model.startswith("hf:") else ("", model)
    if not prefix and not path.partition(":")[0].endswith((".py", ".onnx", ".pt2", ".yaml", ".yml")):
        return model
    if path.endswith((".yaml", ".yml")):
        raise InvalidRequest(f"a workload file names a model, not another workload file ({path})")
    return f"{prefix}{path if Path(path).is_absolute() else folder / path}"
