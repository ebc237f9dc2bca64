"""`foretrain devices`: what hardware is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrain.decoding import SWITCH, option
from foretrain.panels import HERE
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.requests import DevicesRequest

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
    from foretrain.serving.cli.terminal import print_json, print_page
    from foretrain.serving.views.facts import devices_page

    if output.measure_here:
        listed: tuple[Device, ...] = (_measure_here(),)
    elif request.name is not None:
        listed = core.matching(request.name)
    else:
        listed = core.list_devices(request.vendor, request.generation)
    if output.json:
        one = output.measure_here or (request.name is not None and len(listed) == 1)
        print_json(_as_object(listed[0]) if one else [_as_object(device) for device in listed])
    else:
        print_page(devices_page(listed))


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
