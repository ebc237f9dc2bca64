"""`FILE.onnx`: a model from its ONNX graph.

The file describes the forward pass; the backward pass follows by automatic differentiation, with the
floating-point initializers as trained parameters. Weights are not read, only their shapes. The file has no
loss: see `default_loss`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidData, InvalidRequest, UnknownName
from foretrain.workloads.readers._base import (
    DEFAULT_IMAGE_BATCH,
    ModelSource,
    choose_batch,
    digest,
    existing_file,
    need,
    versions,
)
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


@dataclass(frozen=True)
class OnnxFile(ModelSource):
    """An ONNX file."""

    name: str
    file: Path
    kind: str = field(default="onnx", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        with self.file.open("rb") as content:
            return digest(
                {"file": hashlib.file_digest(content, "sha256").digest(), **versions("torch", "onnx")}
            )

    def example(self, options: BuildOptions) -> Example:
        import torch

        from foretrain.workloads.example import Example
        from foretrain.workloads.readers.examples import default_loss, tokens_of
        from foretrain.workloads.readers.onnx_module import OnnxModule

        model = _load(self.file)
        shapes = _input_shapes(model, options, self.name)
        with torch.device("meta"):
            inputs = tuple(_fill(shape, kind) for shape, kind in shapes)
            module = OnnxModule(model, self.file).train()
        batch = shapes[0][0][0] if shapes and shapes[0][0] else 1
        return Example(module, inputs, default_loss, samples=batch, tokens=tokens_of(inputs))


def read_onnx(name: str) -> OnnxFile:
    """The source behind `FILE.onnx`; a damaged file or an unknown operator is refused now."""
    need("onnx", name)
    file = existing_file(Path(name), "ONNX file")
    model = _load(file)
    from foretrain.workloads.readers.onnx_module import KNOWN

    for node in model.graph.node:
        if node.op_type not in KNOWN or node.domain not in ("", "ai.onnx"):
            kind = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
            raise UnknownName("ONNX operator", kind, KNOWN, f"It is node {node.name!r} of {name}.")
    return OnnxFile(name, file.resolve())


def _load(file: Path) -> Any:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        model = onnx.load(str(file), load_external_data=False)
    except DecodeError as error:
        raise InvalidData(
            str(file), f"is no ONNX file, or is truncated ({error}); export it again"
        ) from error
    if not model.graph.node or not model.opset_import:
        raise InvalidData(str(file), "holds no ONNX graph, or is truncated; export it again")
    has_external = any(tensor.data_location == tensor.EXTERNAL for tensor in model.graph.initializer)
    try:
        if not has_external:
            onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        problem = str(error).strip().splitlines()[0]
        raise InvalidData(str(file), f"is not valid ONNX: {problem}") from error
    return model


Shape = tuple[int, ...]


def _input_shapes(model: Any, options: BuildOptions, name: str) -> list[tuple[Shape, int]]:
    """Shape and ONNX element type of every input that is not an initializer."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    if not inputs:
        raise InvalidRequest(f"{name} has no input, so there is no batch to train on")
    return [(_shape(value, options, name), value.type.tensor_type.elem_type) for value in inputs]


def _shape(value: Any, options: BuildOptions, name: str) -> Shape:
    if not value.type.HasField("tensor_type"):
        raise InvalidRequest(f"{name}: input {value.name!r} is not a tensor")
    dims = value.type.tensor_type.shape.dim
    return tuple(_size(value.name, len(dims), axis, dim, options, name) for axis, dim in enumerate(dims))


_MEANINGS = {(2, 1): "seq_len", (3, 1): "seq_len", (4, 2): "image_size", (4, 3): "image_size"}
"""What a dynamic dimension after the first is taken for, by the rank of the input and the axis."""


def _size(value: str, rank: int, axis: int, dim: Any, options: BuildOptions, name: str) -> int:
    """One dimension: as the file fixes it, or as the options say."""
    fixed = int(dim.dim_value) if dim.HasField("dim_value") and dim.dim_value > 0 else None
    if fixed is not None:
        if axis == 0 and options.batch not in (None, fixed):
            raise InvalidRequest(
                f"{name} fixes the batch of {value!r} at {fixed}; export it with a dynamic first dimension "
                f"to train with {options.batch}"
            )
        return fixed
    if axis == 0:
        return choose_batch(options, DEFAULT_IMAGE_BATCH)
    meaning = _MEANINGS.get((rank, axis))
    asked = getattr(options, meaning) if meaning else None
    if asked is None:
        label = dim.dim_param or "unnamed"
        hint = f"give {meaning}" if meaning else "export it with a fixed size"
        raise InvalidRequest(f"{name}: dimension {axis} ({label}) of input {value!r} is dynamic; {hint}")
    return int(asked)


def _fill(shape: Shape, element_type: int) -> Any:
    import torch

    from foretrain.workloads.readers.onnx_module import torch_dtype

    return torch.zeros(shape, dtype=torch_dtype(element_type))
