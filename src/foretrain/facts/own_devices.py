"""The user's own devices: sheets in the form of the shipped ones, checked by the same rules.

    id = "lab-x1"
    name = "Lab X1"
    kind = "gpu"            vendor, family, generation, form and per as well; aliases if it has any

    [[facts]]
    kind = "spec"
    source = "quote of 2026-10"
    memory_bytes = 85899345920

A source is one of foretrain's, or any text that says where the values are from. A sheet is kept in the user's
data directory beside that of this machine's CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from foretrain.answers import Answer
from foretrain.errors import InvalidData, InvalidRequest, MissingData
from foretrain.facts.devices import Device, devices, names_this_machine, user_devices_dir
from foretrain.facts.hardware import is_cluster_file, nodes
from foretrain.facts.integrity import problems
from foretrain.facts.offers import own_offers
from foretrain.facts.providers import providers
from foretrain.facts.sheets import identity, quantities, read_thing
from foretrain.facts.user_data import write_atomically

KINDS = ("gpu", "cpu")
_ID = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_SHOWN_PROBLEMS = 4


@final
@dataclass(frozen=True)
class OwnDevice(Answer):
    """A device of the user's own that was added, replaced or forgotten; `done` says which."""

    device: Device
    done: str
    file: Path

    def to_dict(self) -> dict[str, Any]:
        """Id, name, what was done, and where it is kept."""
        return {
            "id": self.device.id, "name": self.device.name, "done": self.done, "file": str(self.file),
        }  # fmt: skip

    def summary(self) -> tuple[tuple[str, str], ...]:
        """What was done with it."""
        return ((self.device.id, self.done),)


def add_device(file: Path) -> OwnDevice:
    """Check a device file and keep it; what is wrong with it raises `InvalidData` and changes nothing.

    A device of that id which the user added before is replaced.
    """
    item = _read(file)
    wrong = [*_name_problems(item), *_sheet_problems(item)]
    if wrong:
        further = f"; and {len(wrong) - _SHOWN_PROBLEMS} more" if len(wrong) > _SHOWN_PROBLEMS else ""
        raise InvalidData(file.name, "; ".join(wrong[:_SHOWN_PROBLEMS]) + further)
    kept = user_devices_dir() / f"{item.id}.toml"
    done = "replaced" if kept.exists() else "added"
    write_atomically(kept, file.read_bytes())
    devices.cache_clear()
    return OwnDevice(devices()[item.id], done, kept)


def forget_device(name: str) -> OwnDevice:
    """Remove a device that the user added; a shipped one, or one on offer, raises `InvalidRequest`."""
    item = devices()[name]
    if not item.is_own:
        yours = [each.id for each in devices().values() if each.is_own]
        listed = (
            f"yours: {', '.join(yours)}"
            if yours
            else "you have added none; `foretrain devices add FILE.toml` adds one"
        )
        raise InvalidRequest(f"{item.id} comes with foretrain; only your own are forgotten ({listed})")
    offered = [each for each in own_offers() if each.device == item.id]
    if offered:
        first = f"{offered[0].provider}:{offered[0].instance}"
        raise InvalidRequest(
            f"your offer {first} has devices {item.id}; forget it first: foretrain offers forget {first}"
        )
    kept = user_devices_dir() / f"{item.id}.toml"
    kept.unlink()
    devices.cache_clear()
    return OwnDevice(item, "forgotten", kept)


def _read(file: Path) -> Device:
    if not file.is_file():
        raise MissingData(f"there is no file {str(file)!r}; give a device file, as docs/facts.md describes")
    item, keys = read_thing(Device, file, identity(Device))
    unknown = sorted(keys - {*identity(Device), "aliases"})
    if unknown:
        raise InvalidData(
            file.name, f"{', '.join(unknown)} is no key of a device; values stand in [[facts]] blocks"
        )
    device: Device = item
    return device


def _name_problems(item: Device) -> Iterator[str]:
    if not _ID.fullmatch(item.id) or is_cluster_file(item.id):
        yield f"the id {item.id!r} must be of lower-case letters, digits, dots and dashes, e.g. lab-x1"
    if item.kind not in KINDS:
        yield f"kind = {item.kind!r} is none of {', '.join(KINDS)}"
    for name in (item.id, *item.aliases):
        known = devices().find(name)
        if known is not None and not (known.is_own and known.id == item.id):
            yield f"{name!r} is {known.id} already; choose another name"
        elif names_this_machine(name):
            yield f"{name!r} is the CPU of this machine; choose another name"
        elif name in nodes() or name in providers():
            yield f"{name!r} is a machine or a provider; choose another name"


def _sheet_problems(item: Device) -> list[str]:
    """What is wrong with its facts, and with it among the other devices."""
    others = [each for each in devices().values() if each.id != item.id]
    return [
        problem.removeprefix(f"{item.id}: ")
        for problem in problems((*others, item), quantities(), _AnySource())
    ]


class _AnySource:
    """A user's own fact may cite any text."""

    def __contains__(self, source: object) -> bool:
        return isinstance(source, str) and bool(source.strip())
