"""`timm:NAME` and `torchvision:NAME`: the image models of two libraries, without weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.workloads.readers._base import (
    DEFAULT_IMAGE_BATCH,
    ModelSource,
    choose_batch,
    digest,
    module_on_meta,
    need,
    refuse_size,
    versions,
)
from foretrain.workloads.readers._torchvision import repair_torchvision
from foretrain.workloads.zoo.catalogue import BuildOptions

if TYPE_CHECKING:
    from foretrain.workloads.example import Example

TIMM = "timm:"

_CLASSES_WITHOUT_A_HEAD = 1000
"""Classes of the head given to a model that comes without one: those of ImageNet-1k, timm's usual number."""


@dataclass(frozen=True)
class TimmModel(ModelSource):
    """A model of timm. `architecture` is its current name, with the tag of a configuration if given."""

    name: str
    architecture: str
    kind: str = field(default="timm", init=False)
    runs_user_code: bool = field(default=False, init=False)

    def fingerprint(self) -> str:
        return digest({"architecture": self.architecture, **versions("torch", "torchvision", "timm")})

    def example(self, options: BuildOptions) -> Example:
        from foretrain.workloads.readers.examples import classification

        refuse_size(self.name, options, "seq_len")
        batch = choose_batch(options, DEFAULT_IMAGE_BATCH)
        configuration = _configuration(self.architecture)
        channels, height, width = configuration.input_size
        arguments: dict[str, Any] = {}
        if configuration.num_classes == 0:
            arguments["num_classes"] = _CLASSES_WITHOUT_A_HEAD
        if options.image_size is not None and (height, width) != (options.image_size,) * 2:
            height = width = options.image_size
            if configuration.fixed_input_size:
                arguments["img_size"] = options.image_size
        module: Any = self._created(arguments)
        return classification(module, (batch, channels, height, width), classes=module.num_classes)

    def _created(self, arguments: dict[str, Any]) -> Any:
        import timm

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return module_on_meta(lambda: timm.create_model(self.architecture, **arguments))
        except (TypeError, AssertionError, RuntimeError, ValueError, ArithmeticError) as error:
            if "img_size" not in arguments:
                raise
            raise InvalidRequest(
                f"{self.name} cannot be built for images of {arguments['img_size']} pixels: {error}"
            ) from error


def read_timm(name: str) -> TimmModel:
    """The source behind `timm:NAME`; a name timm dropped or never had raises `UnknownName`."""
    need("timm", name)
    repair_torchvision()
    import timm

    asked = name.removeprefix(TIMM)
    current = _current_name(asked)
    if not timm.is_model(current):
        raise UnknownName("timm model", asked, timm.list_models(), "List them: timm.list_models()")
    _configuration(current)
    return TimmModel(name, current)


def _current_name(name: str) -> str:
    """The current name of a model; its former one may map to a tag timm no longer has, which then goes."""
    import timm

    current: str = timm.models.get_deprecated_models().get(name) or name
    architecture, _, tag = current.partition(".")
    is_gone = tag and current not in timm.models.get_arch_pretrained_cfgs(architecture)
    return architecture if is_gone and current != name else current


def _configuration(architecture: str) -> Any:
    """timm's own notes on a model: the size of its images, whether it is fixed, its classes."""
    import timm

    try:
        return timm.models.get_pretrained_cfg(architecture, allow_unregistered=False)
    except RuntimeError as error:
        raise UnknownName("timm model", architecture, timm.list_pretrained(), f"{error}") from error


TORCHVISION = "torchvision:"
_SEGMENTATION = "torchvision.models.segmentation"
_DETECTION = "torchvision.models.detection"
_UNTRACEABLE = {
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

    @property
    def has_data(self) -> bool:  # type: ignore[override]
        """Detection models have a real batch."""
        return self.group.startswith(_DETECTION)

    def fingerprint(self) -> str:
        return digest({"architecture": self.architecture, **versions("torch", "torchvision")})

    def example(self, options: BuildOptions) -> Example:
        from foretrain.workloads.readers.examples import classification, segmentation

        refuse_size(self.name, options, "seq_len")
        if self.has_data:
            return self._detection(options)
        batch = choose_batch(options, DEFAULT_IMAGE_BATCH)
        size, classes = _size_and_classes(self.architecture)
        size = options.image_size or size
        task = segmentation if self.group.startswith(_SEGMENTATION) else classification
        return task(self._module(options.image_size), (batch, 3, size, size), classes)

    def _detection(self, options: BuildOptions) -> Example:
        from foretrain.workloads.readers.torchvision_detection import detection_example

        if not options.real:
            raise InvalidRequest(
                f"{self.name} chooses boxes by the values of their scores, which a trace without data cannot "
                "follow; run its step on this machine's CPU: `trace` real"
            )
        from torchvision import models

        module = models.get_model(self.architecture, weights=None, weights_backbone=None)
        return detection_example(module.train(), options)

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

    asked = name.removeprefix(TORCHVISION)
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
