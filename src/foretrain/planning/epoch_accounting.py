"""A job's time and cost by the epoch, as the seed counts them, and how far its epochs were off.

    cost = epochs · cost of an epoch          time to accuracy = epochs · time of an epoch

Reference: K. B. Sanghvi, "Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
Setting", sections V and VII, table I.
"""

from __future__ import annotations

from foretrain.errors import InvalidRequest
from foretrain.planning.speedup import TimeAndCost


def job_by_epochs(epochs: float, epoch: TimeAndCost) -> TimeAndCost:
    """The whole job: so many times an epoch's time (to reach the accuracy) and its cost."""
    if not epochs > 0:
        raise InvalidRequest(f"{epochs:g} epochs: give more than 0")
    return TimeAndCost(epochs * epoch.seconds, epochs * epoch.usd)


def speedup(one_device_seconds: float, all_devices_seconds: float) -> float:
    """Time on one device over time on all of them; the seed calls this ratio "scaling efficiency"."""
    if not (one_device_seconds > 0 and all_devices_seconds > 0):
        raise InvalidRequest(
            f"times must be above 0, got {one_device_seconds:g} s and {all_devices_seconds:g} s"
        )
    return one_device_seconds / all_devices_seconds


def scaling_efficiency(one_device_seconds: float, all_devices_seconds: float, devices: int) -> float:
    """The speed-up as a share of what so many devices would reach at best: 1 is linear scaling."""
    if devices < 1:
        raise InvalidRequest(f"{devices} devices: give at least 1")
    return speedup(one_device_seconds, all_devices_seconds) / devices


def relative_error(predicted: float, actual: float) -> float:
    """|predicted - actual| / actual: 94 epochs against 25 are 2.76, or 276 %."""
    if not actual > 0:
        raise InvalidRequest(f"an error is relative to something above 0, not {actual:g}")
    return abs(predicted - actual) / actual
