"""What the stopwatch adds to a kernel's time.

A single operator timed between two events on an idle GPU shows

    t = a F + max( kernel , (1 - a) F )

F is what an operator that does next to nothing shows (the host's dispatch, tens of microseconds: a property
of the machine and of the operator's code path, not of the GPU), a the part of it before the kernel starts.
"""

from __future__ import annotations

import numpy as np

from calibration.datasets.measurements import Measurements
from foretrain.prediction.operators.pricing import Floats

_TINY_BYTES = 2e5
_ROUNDING = 8


def floors(measurements: Measurements) -> Floats:
    """F of each measurement: the median time of the tiny works of its operator on its device."""
    floor = np.full(len(measurements), np.nan)
    tiny = measurements.table.bytes < _TINY_BYTES
    for device_id in measurements.devices:
        here = measurements.device_ids == device_id
        for label in sorted(set(measurements.labels[here].tolist())):
            same = here & (measurements.labels == label)
            floor[same] = np.median(measurements.seconds[same & tiny])
    return floor


def observed(kernel_seconds: Floats, floor: Floats, before: Floats | float) -> Floats:
    """What the stopwatch shows for kernels of these lengths; the maximum is slightly rounded off."""
    after = (1 - before) * floor
    return before * floor + (kernel_seconds**_ROUNDING + after**_ROUNDING) ** (1 / _ROUNDING)
