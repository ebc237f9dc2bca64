"""`FILE.pt2`: a program saved by `torch.export.save`.

It holds one graph, recorded at the sizes of its example inputs; a dimension that was exported as dynamic may
take other sizes. It has no loss: see `default_loss`. Loading one may run code that its author chose (pickled
objects, expressions), so that a server treats it like a Python file.
"""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.workloads.readers._base import (
    ModelSource,
    choose_batch,
    digest,
    existing_file,
    need,
    refuse_size,
    versions,
)
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.example import Example


@dataclass(frozen=True)
class ExportedProgram(ModelSource):
    """A file that `torch.export.save` wrote."""

    name: str
    file: Path
    kind: str = field(default="exported program", init=False)
    runs_user_code: bool = field(default=True, init=False)

    def fingerprint(self) -> str:
        with self.file.open("rb") as content:
            return digest({"file": hashlib.file_digest(content, "sha256").digest(), **versions("torch")})

    def example(self, options: BuildOptions) -> Example:
        from foretrain.workloads.example import Example
        from foretrain.workloads.readers.examples import (
            NamedInputs,
            batch_of,
            default_loss,
            resize_inputs,
            tokens_of,
        )

        refuse_size(self.name, options, "seq_len", "image_size")
        program = _load(self.file)
        positional, named = _example_inputs(program, self.name)
        inputs = (*positional, *named.values())
        batch = batch_of(inputs, self.name)
        asked = choose_batch(options, batch)
        if asked != batch:
            _check_dynamic(program, self.name, batch, asked)
            inputs = resize_inputs(inputs, batch, asked)
        module = program.module(check_guards=False)
        if named:
            module = NamedInputs(module, tuple(named), by_position=len(positional))
        return Example(module, inputs, default_loss, samples=asked, tokens=tokens_of(inputs))


def read_exported(name: str) -> ExportedProgram:
    """The source behind `FILE.pt2`; a damaged file is refused now."""
    need("torch", name, extra="torch")
    file = existing_file(Path(name), "exported program")
    if not zipfile.is_zipfile(file):
        raise InvalidData(
            str(file), "is no program that torch.export.save wrote, or is truncated; save it again"
        )
    return ExportedProgram(name, file.resolve())


def _load(file: Path) -> Any:
    import torch

    try:
        return torch.export.load(file)
    except Exception as error:
        problem = f"is no program that torch.export.save wrote: {type(error).__name__}: {error}"
        raise InvalidData(str(file), problem) from error


def _example_inputs(program: Any, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if program.example_inputs is None:
        raise InvalidRequest(f"{name} was saved without its example inputs; export it again with them")
    positional, named = program.example_inputs
    return tuple(positional), dict(named)


def _check_dynamic(program: Any, name: str, batch: int, asked: int) -> None:
    """Another batch needs an input whose first dimension was exported as dynamic."""
    inputs = set(program.graph_signature.user_inputs)
    shapes = [node.meta["val"].shape for node in program.graph.nodes if node.name in inputs]
    if all(isinstance(shape[0], int) for shape in shapes if len(shape)):
        raise InvalidRequest(
            f"{name} was exported for a batch of {batch} alone; export it with a dynamic first dimension "
            f"(dynamic_shapes) to train with {asked}"
        )
