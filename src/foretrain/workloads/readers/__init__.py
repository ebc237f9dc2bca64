"""Models, read from anywhere: `read_model(text)` gives a `ModelSource`, which makes examples to trace.

Nothing here imports torch before an example is made or a library has to be asked for a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.readers._base import ModelSource
from foretrain.workloads.readers.exported import read_exported
from foretrain.workloads.readers.huggingface import read_huggingface
from foretrain.workloads.readers.onnx_file import read_onnx
from foretrain.workloads.readers.python_file import read_python_file
from foretrain.workloads.readers.timm_models import read_timm
from foretrain.workloads.readers.torchvision_models import read_torchvision
from foretrain.workloads.readers.zoo_model import ZooModel
from foretrain.workloads.zoo import zoo

__all__ = ["FORMS", "ModelSource", "read_model"]

FORMS = (
    "a zoo name",
    "hf:DIR_OR_CONFIG.json",
    "timm:NAME",
    "torchvision:NAME",
    "FILE.py:callable",
    "FILE.onnx",
    "FILE.pt2",
    "FILE.yaml",
)
"""The ways to write a model."""

_BY_PREFIX: Mapping[str, Callable[[str], ModelSource]] = {
    "hf": read_huggingface,
    "timm": read_timm,
    "torchvision": read_torchvision,
}
_BY_SUFFIX: Mapping[str, Callable[[str], ModelSource]] = {".onnx": read_onnx, ".pt2": read_exported}
_USER_CODE = (".py", ".pt2")


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
        return ZooModel(text, zoo()[text].name)
    prefix, colon, _ = text.partition(":")
    if colon and prefix in _BY_PREFIX:
        return _BY_PREFIX[prefix](text)
    if suffix == ".py":
        return read_python_file(text)
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix](text)
    if suffix in (".yaml", ".yml"):
        raise InvalidRequest(
            f"{text!r} is a workload file, which describes a whole request: give it to predict, plan or trace"
        )
    raise UnknownName("model", text, zoo(), f"A model is {', '.join(FORMS[:-1])} or {FORMS[-1]}.")
