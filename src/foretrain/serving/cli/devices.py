"""`foretrain devices`: what hardware is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrain.decoding import SWITCH, option
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import DevicesRequest
from foretrain.serving.requests.groups import HERE

if TYPE_CHECKING:
    from foretrain.facts.devices import Device


@dataclass(frozen=True, kw_only=True)
class DevicesOutput(Output):
    """What `devices` does besides listing."""

    measure_here: bool = option(
        SWITCH, "Measure this machine's CPU and add it as the device `here`.", default=False, panel=HERE
    )


def run(request: DevicesRequest, output: DevicesOutput) -> None:
    """List devices, or one in full."""
    from foretrain.facts import devices as core
    from foretrain.serving.cli.terminal import print_json

    if output.measure_here:
        listed: tuple[Device, ...] = (_measure_here(),)
    elif request.name is not None:
        listed = core.matching(request.name)
    else:
        listed = core.listed(request.vendor, request.generation)
    if output.json:
        one = output.measure_here or (request.name is not None and len(listed) == 1)
        print_json(_as_object(listed[0]) if one else [_as_object(device) for device in listed])
    elif len(listed) == 1:
        _show_one(listed[0])
    else:
        _show_all(listed)


COMMAND = Command(
    DevicesRequest,
    DevicesOutput,
    run,
    examples=("foretrain devices", "foretrain devices h100-sxm", "foretrain devices a100 --json"),
)


def _measure_here() -> Device:
    from foretrain.measuring.this_machine import measure_this_machine
    from foretrain.serving.cli.terminal import spinner

    with spinner("Measuring this machine") as progress:
        return measure_this_machine(progress)


def _as_object(device: Device) -> dict[str, Any]:
    return {
        "id": device.id,
        "name": device.name,
        "kind": device.kind,
        "vendor": device.vendor,
        "family": device.family,
        "generation": device.generation,
        "form": device.form,
        "per": device.per,
        "aliases": device.aliases,
        "facts": device.sheet.to_dict(),
    }


def _show_all(devices: tuple[Device, ...]) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table
    from foretrain.units import format_bandwidth, format_bytes, format_flop

    def number(device: Device, quantity: str, form: Any) -> str:
        return form(device.sheet.number(quantity)) if device.sheet.has(quantity) else "-"

    def rate(flop_per_second: float) -> str:
        return format_flop(flop_per_second, "FLOP/s").removesuffix("FLOP/s")

    rows = [
        (
            device.id,
            device.generation,
            number(device, "release_year", lambda year: f"{year:.0f}"),
            number(device, "fp32_flop_per_second", rate),
            number(device, "fp16_tensor_flop_per_second", rate),
            number(device, "memory_bytes", format_bytes),
            number(device, "memory_bytes_per_second", format_bandwidth),
            number(device, "tdp_watts", lambda watts: f"{watts:.0f} W"),
        )
        for device in devices
    ]
    titles = ("FP32", "tensor", "memory", "bandwidth", "TDP")
    columns = [
        Column("device", style="bold"),
        Column("generation", expendable=1),
        Column("year", right=True, expendable=2),
        *(Column(title, right=True) for title in titles),
    ]
    print_table(columns, rows)
    print_line(f"{len(devices)} devices. FP32 and FP16 tensor peaks are dense FLOP/s of one device.")
    print_line("Where a figure comes from: foretrain explain DEVICE")


def _show_one(device: Device) -> None:
    from foretrain.serving.cli.terminal import Column, print_line, print_table

    print_line(f"{device.id}: {device.name}", "bold")
    print_line(f"{device.vendor} {device.generation}, one device = one {device.per}, family {device.family}")
    if device.aliases:
        print_line(f"also called {', '.join(device.aliases)}")
    print_line()
    rows = [
        (fact.quantity, format_fact(fact.quantity, fact.value), fact.kind.value, fact.source)
        for fact in device.sheet
        if fact.preferred
    ]
    columns = [
        Column("quantity"),
        Column("value", right=True),
        Column("kind"),
        Column("source", expendable=1),
    ]
    print_table(columns, rows)
    print_line(f"Titles and links of the sources: foretrain explain {device.id}")


def format_fact(quantity: str, value: float | str) -> str:
    """A fact's value in the units people use."""
    from foretrain import units
    from foretrain.facts.sheets import quantities

    known = quantities().get(quantity)
    if isinstance(value, str) or known is None:
        return str(value)
    forms: dict[str, Callable[[float], str]] = {
        "FLOP/s": lambda number: units.format_flop(number, "FLOP/s"),
        "B": units.format_bytes,
        "B/s": units.format_bandwidth,
        "s": units.format_duration,
        "USD": units.format_money,
        "W": lambda number: f"{number:g} W",
        "Hz": lambda number: f"{number / 1e6:,.0f} MHz",
    }
    form = forms.get(known.unit)
    return form(value) if form else f"{value:g}"
