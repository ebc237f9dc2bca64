"""The simple fit: compute linear in the batch, a ring's synchronisation, overlapped by a p-norm.

step = ((α + β batch)^p + (κ 2(r-1)/r)^p)^(1/p)     κ for one node, another for several
"""

from __future__ import annotations

import numpy as np

from foretrain.learning.scaling.columns import Columns
from foretrain.learning.scaling.forms._base import LEVEL, LEVEL_DEVIATION, Form, Parameter, overlapped
from foretrain.prediction.operators.listing import Floats


class Ring(Form):
    """See the module; all terms are over β, which is the level."""

    name = "ring"
    equation = "(α + β batch)^p + (κ 2(r-1)/r)^p, to the power 1/p"
    parameters = (
        Parameter(LEVEL, 0.0, LEVEL_DEVIATION),
        Parameter("constant", -1.0, 3.0),
        Parameter("sync in a node", -1.0, 3.0),
        Parameter("sync between nodes", -1.0, 3.0),
        Parameter("overlap", 0.0, 2.0),
    )

    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        level, constant, local, network, overlap = values.tolist()
        compute = at.relative_batch + np.exp(constant)
        passed = 2 * (at.devices - 1) / at.devices
        sync = np.where(at.nodes > 1, np.exp(network), np.exp(local)) * passed
        told: Floats = level + np.log(overlapped(overlap, compute, sync))
        return told
