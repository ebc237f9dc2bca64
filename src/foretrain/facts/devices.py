"""Devices: GPUs and CPUs a training job can run on, one TOML file each under `data/devices/<vendor>/`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from foretrain.errors import InvalidData, InvalidRequest
from foretrain.facts.sheets import Sheet, data_root, read_sheet, read_toml
from foretrain.registry import Registry, normalised

_IDENTITY = ("id", "name", "kind", "vendor", "family", "generation", "form", "per")


@dataclass(frozen=True)
class Device:
    """One schedulable device. `per` says what counts as one: a whole board, one die of it, a package.

    `family` is the name several variants share (`a100`); `aliases` are the names drivers and clouds print.
    """

    id: str
    name: str
    kind: str
    vendor: str
    family: str
    generation: str
    form: str
    per: str
    aliases: tuple[str, ...]
    sheet: Sheet

    @property
    def memory_bytes(self) -> float:
        """Device memory."""
        return self.sheet.number("memory_bytes")

    @property
    def memory_bytes_per_second(self) -> float:
        """Nominal memory bandwidth."""
        return self.sheet.number("memory_bytes_per_second")

    @property
    def tdp_watts(self) -> float:
        """Thermal design power."""
        return self.sheet.number("tdp_watts")


@cache
def devices() -> Registry[Device]:
    """All known devices, by id and alias."""
    return Registry(
        "device",
        sorted(
            _read_devices(), key=lambda device: (device.kind != "gpu", device.vendor != "nvidia", device.id)
        ),
        name=lambda device: device.id,
        aliases=lambda device: device.aliases,
        hint="List them: foretrain devices",
    )


def device(name: str) -> Device:
    """The one device called `name`; a family name raises `InvalidRequest` listing its variants."""
    known = devices()
    if name not in known:
        variants = family(name)
        if variants:
            listed = ", ".join(variant.id for variant in variants)
            raise InvalidRequest(f"{name!r} is a family of devices; name one of its variants: {listed}")
    return known[name]


def family(name: str) -> tuple[Device, ...]:
    """The devices that share a family name."""
    wanted = normalised(name)
    return tuple(item for item in devices().values() if normalised(item.family) == wanted)


def matching(name: str) -> tuple[Device, ...]:
    """The devices a filter means: a family's variants, or the one device of that name or alias."""
    return family(name) or (device(name),)


def _read_devices() -> Iterator[Device]:
    for vendor in (data_root() / "devices").iterdir():
        for file in vendor.iterdir():
            if file.name.endswith(".toml"):
                entry = read_toml(file)
                missing = [key for key in _IDENTITY if not isinstance(entry.get(key), str)]
                if missing:
                    raise InvalidData(file.name, f"a device file must say {', '.join(missing)}")
                if entry["id"] + ".toml" != file.name:
                    raise InvalidData(file.name, f"the file is not named after its device, {entry['id']!r}")
                yield Device(
                    **{key: entry[key] for key in _IDENTITY},
                    aliases=tuple(entry.get("aliases", ())),
                    sheet=read_sheet(entry["id"], entry.get("facts", []), file.name),
                )
