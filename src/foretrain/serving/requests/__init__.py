"""Requests: what a verb is asked, as plain data, in a file for each family of verbs.

A request inherits the nouns of the core that its verb needs, whose options are declared once, and adds its
own. `request_from` makes one from options that are given, over those of a workload file, over defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from foretrain.decoding import TEXT, build, option, options, read_mapping, values
from foretrain.errors import InvalidData
from foretrain.panels import STORED
from foretrain.serving.table import VERBS
from foretrain.workloads.options import YAML_SUFFIXES


@dataclass(frozen=True, kw_only=True)
class Request:
    """Base of all requests: the nouns of the core that a verb needs, composed by inheritance.

    `COMMON` lists the options that help shows first, `DETAILS` and `EXAMPLES` follow the summary there. A
    request that `WRAPS` a command takes it after its own options. `PART_OF` is the command of a request that
    no verb takes itself.
    """

    COMMON: ClassVar[str] = ""
    DETAILS: ClassVar[str] = ""
    EXAMPLES: ClassVar[tuple[str, ...]] = ()
    TAKES_WORKLOAD_FILE: ClassVar[bool] = False
    WRAPS: ClassVar[bool] = False
    PART_OF: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check nothing: each noun checks itself when the core takes it (`decoding.part`).

        What one of them refuses may depend on files and facts that a request does not read.
        """


@dataclass(frozen=True, kw_only=True)
class StoreOption:
    """Where runs and schedules are kept."""

    store: str | None = option(
        TEXT,
        "Store: SQLite file or postgresql:// URL (default: FORETRAIN_STORE, else your data folder).",
        metavar="FILE|URL",
        panel=STORED,
    )


_ALTERNATIVES: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("batch",), ("global_batch",)),
    (("steps",), ("epochs",), ("target", "log", "planned_steps", "schedule", "history")),
    (("epochs",), ("epochs_at",)),
)
"""Options that take each other's place: one that is given replaces the others of a workload file."""

CONFIG = "from_config"
"""The option that names a training configuration."""

R = TypeVar("R", bound=Request)


def request_from(cls: type[R], given: Mapping[str, Any]) -> R:
    """The request of the options given; where the model is a workload file, its keys are the defaults."""
    chosen = values(cls, given, refuse=lambda key: unread(cls, key))
    model = chosen.get("model", "")
    if cls.TAKES_WORKLOAD_FILE and model.endswith(YAML_SUFFIXES):
        in_file = workload_file_values(cls, Path(model).expanduser())
        chosen = {**_not_replaced(in_file, chosen), **chosen, "model": in_file["model"]}
    if CONFIG in chosen:
        from foretrain.serving.training_config import configured_values

        chosen = {**_not_replaced(configured_values(cls, chosen), chosen), **chosen}
    return build(cls, chosen)


def takes_config(cls: type[Request]) -> bool:
    """Whether a training configuration may give the options of a request, those that are required too."""
    return any(each.name == CONFIG for each in options(cls))


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


def command_of(cls: type[Request]) -> str:
    """The command that takes a request; of a part of one, the command it names itself."""
    name = cls.__name__
    return cls.PART_OF or next((each.command for each in VERBS.values() if each.request == name), name)


def unread(cls: type[Request], key: str) -> str:
    """Why a key of another verb is refused; nothing if no verb has it."""
    verbs = [
        verb.command
        for verb in VERBS.values()
        if any(option.name == key for option in options(verb.request_class))
    ]
    if not verbs:
        return ""
    others = " and ".join(filter(None, (", ".join(verbs[:-1]), verbs[-1])))
    return f"{command_of(cls)} does not read `{key}`, an option of {others}; leave it out"


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
