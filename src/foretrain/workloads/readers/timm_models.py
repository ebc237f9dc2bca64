"""`timm:NAME`: the image models of the timm package, by current or former name, without weights."""

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

PREFIX = "timm:"

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
        from foretrain.workloads.readers.image_task import classification

        refuse_size(self.name, options, "seq_len")
        batch = chosen_batch(options, DEFAULT_IMAGE_BATCH)
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

    asked = name.removeprefix(PREFIX)
    current = _renamed(asked)
    if not timm.is_model(current):
        raise UnknownName("timm model", asked, timm.list_models(), "List them: timm.list_models()")
    _configuration(current)
    return TimmModel(name, current)


def _renamed(name: str) -> str:
    """The current name of a model; its former one may map to a tag timm no longer has, which then goes."""
    import timm

    current: str = timm.models.get_deprecated_models().get(name, name)
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
