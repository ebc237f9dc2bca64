"""One member sends, one receives: t = startup + α + n/B, in the quicker protocol."""

from __future__ import annotations

from foretrain.prediction.collectives._base import FloatArray
from foretrain.prediction.collectives.medium import Medium, handed_over_seconds


def send_seconds(message_bytes: FloatArray, medium: Medium) -> FloatArray:
    """From one device to another."""
    return handed_over_seconds(message_bytes / medium.peer_bytes_per_second, 1, medium)
