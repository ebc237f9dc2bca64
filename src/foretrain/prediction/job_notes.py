"""What a reader should know of a job's bill and energy."""

from __future__ import annotations

from collections.abc import Sequence

from foretrain.facts.hardware import Hardware
from foretrain.facts.sheets import Kind
from foretrain.prediction.job_bill import Price
from foretrain.prediction.job_energy import Energy


def notes_of(
    groups: Sequence[Hardware], price: Price | None, energy: Energy | None, spot: bool
) -> tuple[str, ...]:
    """What is not known, assumed or not counted."""
    notes: list[str] = []
    if price is None:
        unpriced = ", ".join(group.name for group in groups if group.offer is None)
        of = f" of {unpriced}" if len(groups) > 1 else ""
        notes.append(f"no price is known{of}: name the machine as PROVIDER:INSTANCE, or give --usd-per-hour")
    else:
        assumed = (one.terms.note for one in price.each if one.terms.kind is Kind.ASSUMED)
        notes.extend(dict.fromkeys(assumed))
    if energy is None:
        notes.append("no power of the device is known, so no energy and no emissions")
    elif energy.co2_kg is None:
        notes.append(
            "no emissions: the place is not known; give --region, e.g. FRA, US-VA or a cloud's region"
        )
    if spot:
        notes.append("the wait for spot machines to come back, beyond a start-up, is not counted")
    return tuple(notes)
