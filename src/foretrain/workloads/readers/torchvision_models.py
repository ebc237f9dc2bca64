"""`torchvision:NAME`: the classification and segmentation models of torchvision, without weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.readers._base import (
    DEFAULT_IMAGE_BATCH,
    ModelSource,
    chosen_batch,
    digest,
    module_on_meta,
    need,
    refuse_size,
    versions,
)
from foretrain.workloads.readers.torchvision_repair import repair_torchvision
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

PREFIX = "torchvision:"
_SEGMENTATION = "torchvision.models.segmentation"
_UNTRACEABLE = {
    "torchvision.models.detection": "detection models choose boxes by the values of their scores",
    "torchvision.models.optical_flow": "optical flow models need pairs of images and flows",
    "torchvision.models.video": "video models need clips, which have no size to ask for",
    "torchvision.models.quantization": "quantised models cannot be trained",
}
"""Groups of models that cannot be traced as they are, and why."""


@dataclass(frozen=True)
class TorchvisionModel(ModelSource):
    """A model of torchvision; `group` is the module of the package that defines it."""

    name: str
    architecture: str
    group: str
    kind: str = field(default="torchvision", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        return digest({"architecture": self.architecture, **versions("torch", "torchvision")})

    def example(self, options: BuildOptions) -> Example:
        from foretrain.workloads.readers.image_task import classification, segmentation

        refuse_size(self.name, options, "seq_len")
        batch = chosen_batch(options, DEFAULT_IMAGE_BATCH)
        size, classes = _size_and_classes(self.architecture)
        size = options.image_size or size
        task = segmentation if self.group.startswith(_SEGMENTATION) else classification
        return task(self._module(options.image_size), (batch, 3, size, size), classes)

    def _module(self, image_size: int | None) -> Any:
        from torchvision import models

        arguments: dict[str, Any] = {"weights": None}
        if "weights_backbone" in _parameters(self.architecture):
            arguments["weights_backbone"] = None
        if "aux_loss" in _parameters(self.architecture):  # as the published weights were trained
            arguments["aux_loss"] = True
        if self.group.endswith("vision_transformer") and image_size is not None:
            arguments["image_size"] = image_size
        if self.group.endswith("maxvit") and image_size is not None:
            arguments["input_size"] = (image_size, image_size)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return module_on_meta(lambda: models.get_model(self.architecture, **arguments))
        except ValueError as error:
            raise InvalidRequest(f"{self.name}: {error}") from error


def read_torchvision(name: str) -> TorchvisionModel:
    """The source behind `torchvision:NAME`."""
    need("torchvision", name)
    repair_torchvision()
    from torchvision import models

    asked = name.removeprefix(PREFIX)
    known = models.list_models()
    if asked not in known:
        raise UnknownName("torchvision model", asked, known, "List them: torchvision.models.list_models()")
    group = models.get_model_builder(asked).__module__
    for prefix, reason in _UNTRACEABLE.items():
        if group.startswith(prefix):
            raise InvalidRequest(
                f"{name} cannot be traced: {reason}; write a Python file and FILE.py:callable"
            )
    return TorchvisionModel(name, asked, group)


def _size_and_classes(architecture: str) -> tuple[int, int]:
    """Pixels per side and classes, as torchvision's own recipe of the model's weights says."""
    from torchvision import models

    weights = next(iter(models.get_model_weights(architecture)))
    transforms = weights.transforms()
    crop = getattr(transforms, "crop_size", None) or transforms.resize_size
    return int(crop[0]), len(weights.meta["categories"])


def _parameters(architecture: str) -> frozenset[str]:
    import inspect

    from torchvision import models

    return frozenset(inspect.signature(models.get_model_builder(architecture)).parameters)
