"""Devices: GPUs and CPUs a training job can run on, one TOML file each under `data/devices/<vendor>/`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from foretrain.errors import InvalidRequest, MissingData, UnknownName
from foretrain.facts.sheets import Fact, FactKind, Sheet, data_root, read_things, read_toml
from foretrain.facts.user_data import user_data_dir
from foretrain.registry import Registry, normalise

THIS_MACHINE = "here"
"""The device that a calibration of this machine's CPU adds."""
_THIS_MACHINE = frozenset({THIS_MACHINE, "this-machine", "cpu"})
"""Its names."""


@dataclass(frozen=True)
class Device:
    """One schedulable device. `per` says what counts as one: a whole board, one die of it, a package.

    `family` is the name several variants share (`a100`); `aliases` are the names drivers and clouds print.
    `is_own` says that its sheet is the user's: added, or measured on this machine.
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
    is_own: bool = False

    def __hash__(self) -> int:
        return hash(self.id)  # of all facts it would take longer than many results that are kept by device

    @property
    def is_this_machine(self) -> bool:
        """Whether it is the CPU that `foretrain calibrate --here` measured."""
        return self.id == THIS_MACHINE

    @property
    def is_cpu(self) -> bool:
        """Whether it is a CPU: it computes in the memory of its host, and no kernels are launched on it."""
        return self.kind == "cpu"

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.kind == "gpu"

    @property
    def is_pcie_card(self) -> bool:
        """Whether it is a card in a slot of PCI Express, rather than on a board with links of its own."""
        return self.form == "pcie"

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

    @property
    def sm_count(self) -> float:
        """Multiprocessors (NVIDIA) or compute units (AMD)."""
        return self.sheet.number("sm_count")

    @property
    def clock_hertz(self) -> float:
        """Boost clock."""
        return self.sheet.number("boost_clock_hertz")

    @property
    def l2_bytes(self) -> float:
        """The cache that all multiprocessors share."""
        return self.sheet.number("l2_bytes")

    @property
    def compute_capability(self) -> str:
        """The instruction set: `9.0` of NVIDIA, `gfx942` of AMD; empty where it is unknown."""
        return self.sheet.text("compute_capability") if self.sheet.has("compute_capability") else ""

    @property
    def cuda_capability(self) -> float:
        """The compute capability of an NVIDIA device as a number; 0 for others."""
        own = self.compute_capability
        return float(own) if own.replace(".", "").isdigit() else 0.0

    @property
    def has_pcie_peer_access(self) -> bool:
        """Whether devices of a node reach each other's memory over PCI Express; assumed where not stated."""
        return not self.sheet.has("pcie_peer_access") or self.sheet.text("pcie_peer_access") == "yes"


@cache
def devices() -> Registry[Device]:
    """All known devices, by id and alias."""
    shipped = [each for folder in (data_root() / "devices").iterdir() for each in read_things(Device, folder)]
    return Registry(
        "device",
        sorted(
            (*shipped, *_own_devices(shipped)),
            key=lambda device: (not device.is_gpu, device.vendor != "nvidia", device.id),
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
        if names_this_machine(name):
            raise MissingData(
                "this machine's CPU is not measured yet; run `foretrain calibrate --here` (two minutes)"
            )
        refuse_unmodelled(name)
    return known[name]


def refuse_unmodelled(name: str) -> None:
    """Raise `MissingData` for the name of an accelerator, or of an instance with it, that has no model."""
    wanted = normalise(name)
    for entry in read_toml(data_root() / "unmodelled.toml")["accelerators"]:
        if any(fnmatchcase(wanted, each) for each in entry["names"]):
            raise MissingData(
                f"foretrain has no model of {entry['name']} ({name!r}). GPUs with a data sheet: foretrain "
                "devices; add one of your own: foretrain devices add FILE.toml"
            )


def names_this_machine(name: str) -> bool:
    """Whether a name is that of the present machine: its CPU, if measured, else the GPUs of its driver."""
    return normalise(name) in _THIS_MACHINE


def with_watts(item: Device, watts: float) -> Device:
    """A device limited to fewer watts (`power.limit` of `nvidia-smi`) than its data sheet says.

    More than the sheet's, or nothing, raises `InvalidRequest`.
    """
    sold = item.tdp_watts
    if not 0 < watts <= sold:
        raise InvalidRequest(
            f"power limit {watts:g} W of {item.id} must be above 0 and at most its {sold:g} W"
        )
    if watts == sold:
        return item
    limit = Fact(
        "tdp_watts", watts, FactKind.ASSUMED, "request", note=f"limited by the user; sold with {sold:g} W"
    )
    facts = tuple(fact for fact in item.sheet if fact.quantity != "tdp_watts")
    return replace(item, sheet=Sheet(item.sheet.subject, (limit, *facts)))


def family(name: str) -> tuple[Device, ...]:
    """The devices that share a family name."""
    wanted = normalise(name)
    return tuple(item for item in devices().values() if normalise(item.family) == wanted)


def matching(name: str) -> tuple[Device, ...]:
    """The devices a filter means: a family's variants, or the one device of that name or alias."""
    return family(name) or (device(name),)


def list_devices(vendor: str | None = None, generation: str | None = None) -> tuple[Device, ...]:
    """All devices of a vendor and generation; an unknown one raises `UnknownName`."""
    selected = tuple(devices().values())
    for kind, wanted in (("vendor", vendor), ("generation", generation)):
        if wanted is not None:
            known = {getattr(item, kind) for item in selected}
            if normalise(wanted) not in {normalise(name) for name in known}:
                raise UnknownName(kind, wanted, known, f"Known: {', '.join(sorted(known))}")
            selected = tuple(item for item in selected if normalise(getattr(item, kind)) == normalise(wanted))
    return selected


def _own_devices(shipped: Iterable[Device]) -> Iterator[Device]:
    """The user's own devices; a name that a later version of foretrain ships too means the shipped one."""
    folder = user_devices_dir()
    taken = {normalise(name) for each in shipped for name in (each.id, *each.aliases)}
    for own in read_things(Device, folder) if folder.is_dir() else ():
        if normalise(own.id) not in taken:
            aliases = tuple(name for name in own.aliases if normalise(name) not in taken)
            yield replace(own, aliases=aliases, is_own=True)


def user_devices_dir() -> Path:
    """Where the user's own sheets are kept: of devices added, and of this machine's CPU if measured."""
    return user_data_dir() / "devices"
