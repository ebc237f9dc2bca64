"""A zoo name: one of foretrain's own models."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING

from foretrain.workloads.readers._base import ModelSource, digest, versions
from foretrain.workloads.zoo import BuildOptions, build

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

_PACKAGE = "foretrain.workloads.zoo"


@dataclass(frozen=True)
class ZooModel(ModelSource):
    """A model of the zoo, by name or alias; `entry` is the name it goes by there."""

    name: str
    entry: str
    kind: str = field(default="zoo", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        texts = {
            file.name: file.read_bytes()
            for file in resources.files(_PACKAGE).iterdir()
            if file.name.endswith((".py", ".toml"))
        }
        return digest({"entry": self.entry, **texts, **versions("torch")})

    def example(self, options: BuildOptions) -> Example:
        import torch

        with torch.device("meta"):
            return build(self.entry, options)
