"""What a model can be read from, and what every reader shares."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from foretrain.errors import InvalidRequest, MissingData
from foretrain.workloads.recorded.library import has_package
from foretrain.workloads.zoo.catalogue import BuildOptions, EqualBlocks

if TYPE_CHECKING:
    import torch

    from foretrain.workloads.example import Example
    from foretrain.workloads.zoo.catalogue import ModelShape

DEFAULT_IMAGE_BATCH = 32
"""Samples per step of an image model without a given batch; the zoo's choice for most of its own."""
DEFAULT_TEXT_BATCH = 1
"""The same for a language model."""
DEFAULT_SEQ_LEN = 512
"""Tokens per sequence by default, or fewer if the model has fewer positions."""
BOXES_PER_IMAGE = 8
"""COCO has 7.7 objects in an image on average (Lin et al. 2014, arXiv:1405.0312)."""


class ModelSource(ABC):
    """Where a model comes from. Final classes are frozen dataclasses, made by `read_model`.

    `name` is what the user wrote, `kind` the sort of source, and `runs_user_code` says whether building the
    model runs code the user handed in, which a server must refuse. Graphs of a source that `is_kept` are
    stored for other processes. One that `has_data` can make a real example; one that is known to have no
    attention of a kind to choose says so in `has_attention`. One that repeats equal `blocks` can be read with
    fewer of them.
    """

    name: str
    kind: str
    runs_user_code: bool
    is_kept: bool = True
    has_data: bool = False
    has_attention: bool = True

    @property
    def blocks(self) -> EqualBlocks | None:
        """The equal blocks of the model; None if it has none, or none that are known to be equal."""
        return None

    def with_blocks(self, count: int) -> ModelSource:
        """The same model with another number of equal blocks."""
        raise NotImplementedError(f"{self.name} has no equal blocks to count")

    @abstractmethod
    def fingerprint(self) -> str:
        """Hex digest of all the graph depends on besides options: the model's text, the library versions."""

    @abstractmethod
    def example(self, options: BuildOptions) -> Example:
        """The model with a batch of inputs and a loss, on the meta device where its constructor allows."""

    def fill_sizes(self, options: BuildOptions) -> BuildOptions:
        """The options with the model's own sequence length and image size, as far as they are known."""
        return options

    def shape(self, options: BuildOptions) -> ModelShape | None:
        """The architecture and sizes that a recording is found by; None for what is always traced."""
        del options
        return None


def digest(parts: Mapping[str, bytes | str]) -> str:
    """SHA-256 of named parts, in order of name; each is framed by its length, so parts never run together."""
    total = hashlib.sha256()
    for name in sorted(parts):
        part = parts[name]
        data = part.encode() if isinstance(part, str) else part
        total.update(f"{name}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()


def versions(*distributions: str) -> dict[str, str]:
    """Versions of the packages a graph depends on, as parts of a digest."""
    return {f"version of {name}": _version(name) for name in distributions}


@cache
def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "absent"


def need(distribution: str, what: str, extra: str = "models") -> None:
    """Raise `MissingData` unless a package is installed."""
    if _version(distribution) == "absent" or not has_package(distribution):
        raise MissingData(
            f"{what} needs {distribution}, which is not installed: pip install foretrain[{extra}]"
        )


def existing_file(path: Path, what: str) -> Path:
    """`path`, or `MissingData` saying that there is no such file and what is near."""
    if path.is_file():
        return path
    problem = "is a folder" if path.is_dir() else "does not exist"
    similar = (
        sorted(other.name for other in path.parent.glob(f"*{path.suffix}")) if path.parent.is_dir() else []
    )
    hint = f"; in its folder there is {', '.join(similar[:5])}" if similar else ""
    raise MissingData(f"the {what} {str(path)!r} {problem}{hint or '; give the path of a file'}")


def module_on_meta(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The module that `build` makes, in training mode, on the meta device where it can be.

    Constructors that compute a schedule (`[x.item() for x in linspace(...)]`) or hand weights to numpy fail
    on meta: those run for real, and the trace moves the module. Any other failure is the constructor's own,
    and is not tried again: built for real, a model may not fit the memory of this machine.
    """
    import torch

    try:
        with torch.device("meta"):
            return build().train()
    except (RuntimeError, TypeError, ValueError) as error:
        if "meta" not in str(error):
            raise
    return build().train()


def choose_batch(options: BuildOptions, default: int) -> int:
    """The batch asked for, or the default; at least one."""
    batch = default if options.batch is None else options.batch
    if batch < 1:
        raise InvalidRequest(f"batch {batch} does not fit: it must be at least 1")
    return batch


def refuse_size(name: str, options: BuildOptions, *sizes: str) -> None:
    """Raise `InvalidRequest` for a size that was asked for and that the model has not."""
    for size in sizes:
        asked = getattr(options, size)
        if asked is not None:
            raise InvalidRequest(f"{name} has no {size}; leave out {size} {asked}")
