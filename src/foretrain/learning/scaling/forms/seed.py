"""The seed's regression of step time: f = a0 M/g + a1 g + a2.

M samples are divided over g devices; M/g is the batch of a device. Terms are at least 0.
"""

from __future__ import annotations

import numpy as np

from foretrain.learning.scaling.columns import Columns
from foretrain.learning.scaling.forms._base import LEVEL, LEVEL_DEVIATION, Form, Parameter
from foretrain.prediction.operators.listing import Floats


class Seed(Form):
    """See the module; a1 and a2 are over a0, which is the level."""

    name = "seed"
    equation = "a0 M/g + a1 g + a2"
    parameters = (
        Parameter(LEVEL, 0.0, LEVEL_DEVIATION),
        Parameter("per device", -2.0, 3.0),
        Parameter("constant", -1.0, 3.0),
    )

    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        level, per_device, constant = values.tolist()
        told: Floats = level + np.log(at.relative_batch + np.exp(per_device) * at.devices + np.exp(constant))
        return told
