"""The machines of a buyer's guide: CPUs, GPUs, cloud instances, each with its price if it has one.

A cloud instance has its own price. Other hardware is priced by the cheapest current offer of as many devices
of its kind in one machine; where there is none it has no price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrain.errors import InvalidRequest, MissingData
from foretrain.facts.devices import THIS_MACHINE, Device, devices
from foretrain.facts.hardware import Hardware, hardware
from foretrain.facts.offers import Offer, OfferQuery, search
from foretrain.prediction.operators.cpu import calibration_of

CPU_BY_DATA_SHEET = "epyc-7742"
"""The default CPU where that of this machine was not measured: its peak and bandwidth are known."""
GPUS = ("rtx4090", "a100-sxm-80gb", "h100-sxm")
"""The default GPUs: three classes of price, all with current offers."""
COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Machine:
    """A row of the guide. `offer` has its price; None without a current offer.

    `is_bound`: only the data sheet of the device is known, which bounds times from below.
    `one_usd_per_hour` is the price of one such device at the same provider, or its share of the machine.
    """

    hardware: Hardware
    offer: Offer | None
    one_usd_per_hour: float | None
    is_bound: bool = False

    @property
    def name(self) -> str:
        """The name of the hardware."""
        return self.hardware.name

    @property
    def devices(self) -> int:
        """Devices in all its nodes."""
        return self.hardware.devices

    @property
    def is_cpu(self) -> bool:
        """Whether its devices are CPUs."""
        return self.hardware.device.is_cpu

    @property
    def usd_per_hour(self) -> float | None:
        """The hourly price of all its nodes on demand."""
        return None if self.offer is None else self.offer.usd_per_hour * self.hardware.nodes


def default_machines(clouds: tuple[str, ...] = ()) -> tuple[Machine, ...]:
    """A CPU, and 1, 2, 4 and 8 of GPUs of three classes."""
    return machines_named((default_cpu(), *GPUS), COUNTS, clouds)


def default_cpu() -> str:
    """The CPU of this machine if it was measured, else one known by its data sheet."""
    own = devices().find(THIS_MACHINE)
    return own.id if own is not None and _is_measured(own) else CPU_BY_DATA_SHEET


def machines_named(
    names: Sequence[str], counts: Sequence[int] = (), clouds: tuple[str, ...] = ()
) -> tuple[Machine, ...]:
    """The machines of these names, each once; a GPU without a count is taken in each of `counts`."""
    if any(count < 1 for count in counts):
        raise InvalidRequest(f"`counts` of GPUs must be at least 1, got {', '.join(map(str, counts))}")
    written = dict.fromkeys(text for name in names for text in _with_counts(name, counts))
    return tuple(machine_of(hardware(text), clouds) for text in written)


def machine_of(written: Hardware, clouds: tuple[str, ...] = ()) -> Machine:
    """Hardware with its price; `clouds` restricts the offers."""
    is_bound = written.device.is_cpu and not _is_measured(written.device)
    offer = written.offer or _cheapest(written.device, written.devices_per_node, clouds)
    return Machine(written, offer, _price_of_one(written.device, offer), is_bound)


def one_of(machine: Machine) -> Hardware:
    """One device of the kind of a machine."""
    return machine.hardware if machine.devices == 1 else hardware(machine.hardware.device.id)


def _with_counts(name: str, counts: Sequence[int]) -> list[str]:
    known = devices()
    if not counts or name not in known or known[name].is_cpu:
        return [name]
    return [name if count == 1 else f"{name}:{count}" for count in counts]


def _is_measured(device: Device) -> bool:
    try:
        calibration_of(device)
    except MissingData:
        return False
    return True


def _cheapest(device: Device, count: int, clouds: tuple[str, ...]) -> Offer | None:
    if device.is_cpu:
        return None
    offers = search(OfferQuery(gpu=device.id, count=count, clouds=clouds, cheapest_region=True))
    return next((offer for offer in offers if offer.device == device.id), None)


def _price_of_one(device: Device, offer: Offer | None) -> float | None:
    if offer is None:
        return None
    one = None if offer.historical else _cheapest(device, 1, (offer.provider,))
    return offer.usd_per_device_hour if one is None else one.usd_per_hour
