"""Whether a measured step can be meant: a wrong unit shows as a ratio to the prediction of a power of ten."""

from __future__ import annotations

from foretrain.errors import InvalidRequest
from foretrain.units import format_duration

_LARGEST_RATIO = 100.0
"""Predictions of any device are within this factor; what is beyond is a typing error."""
_UNITS = ((1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds"))
_WITHIN = 4.0
"""A unit is named if it brings the time within this factor of the prediction."""


def check_plausible(measured_seconds: float, predicted_seconds: float, column: str = "step_seconds") -> None:
    """Refuse a time that no machine of the kind takes, with what it looks like."""
    ratio = measured_seconds / predicted_seconds
    if 1 / _LARGEST_RATIO < ratio < _LARGEST_RATIO:
        return
    times = f"{ratio:,.0f} times" if ratio > 1 else f"1/{1 / ratio:,.0f} of"
    raise InvalidRequest(
        f"{column} is {measured_seconds:g}, {times} the {format_duration(predicted_seconds)} that are "
        f"predicted; {_looks_like(measured_seconds, ratio)}"
    )


def _looks_like(measured_seconds: float, ratio: float) -> str:
    for scale, unit in _UNITS:
        if 1 / _WITHIN <= ratio / scale <= _WITHIN:
            return f"it looks like {unit}: in seconds it is {measured_seconds / scale:g}"
    if ratio < 1:
        return "it looks like a time of one sample, or in minutes or hours: give seconds of a whole step"
    return "check the model, the device and the batch size, and give the time of one step in seconds"
