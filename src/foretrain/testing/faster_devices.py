"""Real devices with other figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from foretrain.facts.devices import Device
from foretrain.facts.sheets import Sheet

_SPEED_AND_SIZE = ("memory_bytes_per_second", "sm_count", "l2_bytes", "boost_clock_hertz", "tdp_watts")


def doubled(device: Device) -> Device:
    """The device with every figure of its speed and size doubled."""
    return _scaled(device, lambda name: name in _SPEED_AND_SIZE or name.endswith("flop_per_second"))


def with_twice_the_bandwidth(device: Device) -> Device:
    """The device with memory twice as fast, and nothing else."""
    return _scaled(device, lambda name: name == "memory_bytes_per_second")


def _scaled(device: Device, is_meant: Callable[[str], bool]) -> Device:
    facts = tuple(
        replace(fact, value=2 * fact.value)
        if is_meant(fact.quantity) and not isinstance(fact.value, str)
        else fact
        for fact in device.sheet
    )
    return replace(device, sheet=Sheet(device.sheet.subject, facts))
