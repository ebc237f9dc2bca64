"""GPUs with round figures, for numbers a reader can check by hand."""

from __future__ import annotations

from dataclasses import replace

from foretrain.facts.devices import Device
from foretrain.facts.sheets import Fact, Kind, Sheet

_DOUBLED = ("memory_bytes_per_second", "sm_count", "l2_bytes", "boost_clock_hertz", "tdp_watts")


def plain_device(
    flop_per_second: float = 1.0,
    bytes_per_second: float = 1.0,
    sm_count: float = 1,
    clock_hertz: float = 1.0,
    l2_bytes: float = 1.0,
) -> Device:
    """A device of which only what the operator models need is known."""
    figures: dict[str, float | str] = {
        "fp32_flop_per_second": flop_per_second,
        "fp16_tensor_flop_per_second": 8 * flop_per_second,
        "memory_bytes_per_second": bytes_per_second,
        "sm_count": sm_count,
        "boost_clock_hertz": clock_hertz,
        "l2_bytes": l2_bytes,
        "tdp_watts": 100.0,
    }
    facts = tuple(Fact(name, value, Kind.ASSUMED, "test") for name, value in figures.items())
    return Device(
        "plain", "Plain", "gpu", "nvidia", "plain", "plain", "pcie", "board", (), Sheet("plain", facts)
    )


def doubled(device: Device) -> Device:
    """The device with every figure of its speed and size doubled."""
    facts = tuple(
        replace(fact, value=2 * fact.value)
        if _is_doubled(fact.quantity) and not isinstance(fact.value, str)
        else fact
        for fact in device.sheet
    )
    return replace(device, sheet=Sheet(device.sheet.subject, facts))


def _is_doubled(quantity: str) -> bool:
    return quantity in _DOUBLED or quantity.endswith("flop_per_second")
