"""Sums made in the switch (NVLink SHARP, third generation of NVSwitch and later).

Members send the message once and read the sum once, both directions at the same time: W = n / S, where S is
the rate at which the switch sums. Measured on eight devices only: with four, NCCL stays with rings.
"""

from __future__ import annotations

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, carried_seconds

MEMBERS = 8
_STEPS = 2


def can_sum(members: int, medium: Medium) -> bool:
    """Whether the switch does the sum for so many members."""
    return medium.in_switch_bytes_per_second > 0 and members >= MEMBERS


def in_switch_all_reduce_seconds(message_bytes: FloatArray, members: int, medium: Medium) -> FloatArray:
    """Sum of all, at all, made by the switch. Starting it takes as long as a ring's steps."""
    steps = _STEPS * (members - 1)
    return carried_seconds(message_bytes / medium.in_switch_bytes_per_second, steps, medium)
