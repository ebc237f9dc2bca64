"""Models, read from anywhere: `read_model(text)` gives a `ModelSource`, which makes examples to trace.

Nothing here imports torch before an example is made or a library has to be asked for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.readers._base import ModelSource, digest, versions
from foretrain.workloads.zoo import BuildOptions, EqualBlocks, build, zoo
from foretrain.workloads.zoo.catalogue import LAYERS, ModelShape, shape_of

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

__all__ = ["ACCEPTED", "FORMS", "ModelSource", "ZooModel", "read_model"]

ACCEPTED: Mapping[str, str] = {
    "a zoo name": "a model of foretrain's own, listed by `foretrain models`",
    "hf:DIR_OR_CONFIG.json": "a Hugging Face configuration: text, images, speech, detection, image and text",
    "hf:ORG/NAME": "a model of the Hugging Face hub whose config.json is in the local cache",
    "timm:NAME": "an image classifier of timm",
    "torchvision:NAME": "a classification or segmentation model of torchvision; detection with trace real",
    "FILE.py:callable": "your own: returns (module, inputs[, loss]) or (step function, inputs)",
    "FILE.onnx": "a forward graph, whose backward pass is derived",
    "FILE.pt2": "a program saved by torch.export",
    "FILE.yaml": "a workload file: a model and any option of the command",
}
"""The ways to write a model, and what each accepts."""
FORMS = tuple(ACCEPTED)

_BY_PREFIX = {
    "hf": "huggingface.read_huggingface",
    "timm": "image_libraries.read_timm",
    "torchvision": "image_libraries.read_torchvision",
}
_BY_SUFFIX = {
    ".py": "python_file.read_python_file",
    ".onnx": "onnx_file.read_onnx",
    ".pt2": "exported.read_exported",
}
"""The reader of a form: a file of this folder, imported when it is needed, and its function."""
_USER_CODE = (".py", ".pt2")


_PACKAGE = "foretrain.workloads.zoo"


@dataclass(frozen=True)
class ZooModel(ModelSource):
    """A model of the zoo, by name or alias; `entry` is the name it goes by there, `layers` another depth."""

    name: str
    entry: str
    has_attention: bool = True
    layers: int | None = None
    kind: str = field(default="zoo", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        return zoo_fingerprint(self.entry, self.layers)

    @property
    def blocks(self) -> EqualBlocks | None:
        """The blocks of a transformer, whose number is an entry of its configuration."""
        return zoo()[self.entry].blocks

    def with_blocks(self, count: int) -> ZooModel:
        return replace(self, layers=count)

    def fill_sizes(self, options: BuildOptions) -> BuildOptions:
        sizes = zoo()[self.entry].sizes(options)
        return replace(options, seq_len=sizes.seq_len or None, image_size=sizes.image_size or None)

    def shape(self, options: BuildOptions) -> ModelShape | None:
        entry = zoo()[self.entry]
        shape = shape_of(entry, entry.sizes(options))
        if self.layers is None:
            return shape
        return shape.with_layers(self.layers) if LAYERS in shape.sizes else None

    def example(self, options: BuildOptions) -> Example:
        import torch

        with torch.device("meta"):
            return build(self.entry, options, self.layers)


@cache
def zoo_fingerprint(entry: str, layers: int | None) -> str:
    """The zoo is part of the package: its files are read once per process, however many graphs are asked."""
    texts = {
        file.name: file.read_bytes()
        for file in resources.files(_PACKAGE).iterdir()
        if file.name.endswith((".py", ".toml"))
    }
    depth = {} if layers is None else {"layers": str(layers)}
    return digest({"entry": entry, **depth, **texts, **versions("torch")})


def read_model(model: str, *, allow_user_code: bool = True) -> ModelSource:
    """The source behind what a user wrote, dispatched by its form; see `FORMS`.

    With `allow_user_code` False, sources that run code the user handed in are refused unread: a server must
    never run them. A zoo name wins over a file of the same name.
    """
    text = model.strip()
    suffix = Path(text.rpartition(":")[0] if ".py:" in text else text).suffix.lower()
    if not allow_user_code and suffix in _USER_CODE:
        raise InvalidRequest(
            f"{text!r} runs code of its author, and a server never runs model files; use the command line "
            "or give a zoo name, a timm or torchvision name, or an ONNX file"
        )
    if text in zoo():
        return ZooModel(text, zoo()[text].name, zoo()[text].attention)
    prefix, colon, _ = text.partition(":")
    if colon and prefix in _BY_PREFIX:
        return _reader(_BY_PREFIX[prefix])(text)
    if suffix in _BY_SUFFIX:
        return _reader(_BY_SUFFIX[suffix])(text)
    if suffix in (".yaml", ".yml"):
        raise InvalidRequest(
            f"{text!r} is a workload file, which describes a whole request: give it to predict, plan or trace"
        )
    raise UnknownName("model", text, zoo(), f"A model is {', '.join(FORMS[:-1])} or {FORMS[-1]}.")


def _reader(place: str) -> Callable[[str], ModelSource]:
    file, _, function = place.partition(".")
    read: Callable[[str], ModelSource] = getattr(import_module(f"{__name__}.{file}"), function)
    return read
