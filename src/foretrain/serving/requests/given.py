"""From the options given, over those of a workload file, over defaults, to a request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from foretrain.decoding import build, options, read_mapping, values
from foretrain.errors import InvalidData
from foretrain.serving.requests.base import Request
from foretrain.workloads.options import YAML_SUFFIXES

_LOG_FIELDS = ("target", "log", "planned_steps", "schedule", "history")
_ALTERNATIVES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("batch",), ("global_batch",)),
    (("steps",), ("epochs",), _LOG_FIELDS),
    (("epochs",), ("epochs_at",)),
)
"""Options that take each other's place: one that is given replaces the others of a workload file."""

R = TypeVar("R", bound=Request)


def request_from(cls: type[R], given: Mapping[str, Any]) -> R:
    """The request of the options given; where the model is a workload file, its keys are the defaults."""
    chosen = values(cls, given, refuse=lambda key: unread(cls, key))
    model = chosen.get("model", "")
    if cls.TAKES_WORKLOAD_FILE and model.endswith(YAML_SUFFIXES):
        in_file = workload_file_values(cls, Path(model).expanduser())
        chosen = {**_not_replaced(in_file, chosen), **chosen, "model": in_file["model"]}
    return build(cls, chosen)


def workload_file_values(cls: type[Request], file: Path) -> dict[str, Any]:
    """The checked values of a workload file; files it names are looked for beside it."""
    content = read_mapping(file, "workload file", "model: resnet50")
    checked = values(cls, content, file, lambda key: unread(cls, key))
    if "model" not in checked:
        raise InvalidData(str(file), "names no model; add a line such as `model: resnet50`")
    if checked["model"].endswith(YAML_SUFFIXES):
        raise InvalidData(
            str(file), f"names another workload file ({content['model']}); it must name a model"
        )
    return checked


def unread(cls: type[Request], key: str) -> str:
    """Why a key of another verb is refused; nothing if no verb has it."""
    from foretrain.serving.requests.by_verb import REQUESTS

    verbs = [each.VERB for each in REQUESTS if any(option.name == key for option in options(each))]
    if not verbs:
        return ""
    return f"{cls.VERB} does not read `{key}`, an option of {' and '.join(verbs)}; leave it out"


def _not_replaced(in_file: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    replaced = {
        name
        for family in _ALTERNATIVES
        for place, names in enumerate(family)
        if any(name in given for name in names)
        for other, names_of_other in enumerate(family)
        if other != place
        for name in names_of_other
    }
    return {name: value for name, value in in_file.items() if name not in replaced}
