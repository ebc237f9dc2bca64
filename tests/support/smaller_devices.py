"""Hardware like real one, with another size of memory."""

from __future__ import annotations

from dataclasses import replace

from foretrain.facts.hardware import Hardware, hardware
from foretrain.facts.sheets import Sheet


def with_memory(on: str, size: float) -> Hardware:
    """Hardware whose devices have `size` bytes of memory."""
    machine = hardware(on)
    facts = tuple(
        replace(fact, value=size) if fact.quantity == "memory_bytes" else fact
        for fact in machine.device.sheet
    )
    return replace(machine, device=replace(machine.device, sheet=Sheet(machine.device.sheet.subject, facts)))
