"""Pollux's throughput model: step = (T_grad^γ + T_sync^γ)^(1/γ).

    T_grad = α + β batch        T_sync = 0 (one device), α_l + β_l (r-2) (one node), α_n + β_n (r-2) (several)

r devices; γ from 1 (in turn) to 10 (side by side). Terms are at least 0.

Reference: A. Qiao et al., Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning,
OSDI 2021, section 3.2.
"""

from __future__ import annotations

import numpy as np

from foretrain.learning.scaling.columns import Columns
from foretrain.learning.scaling.forms._base import LEVEL, LEVEL_DEVIATION, Form, Parameter, overlapped
from foretrain.prediction.operators.listing import Floats

_LOG_MOST = float(np.log(9.0))


class Pollux(Form):
    """See the module; all terms are over β, which is the level."""

    name = "pollux"
    equation = "(α + β batch)^γ + (α_sync + β_sync (r-2))^γ, to the power 1/γ"
    parameters = (
        Parameter(LEVEL, 0.0, LEVEL_DEVIATION),
        Parameter("constant", -1.0, 3.0),
        Parameter("sync in a node", -1.0, 3.0),
        Parameter("sync in a node per device", -3.0, 3.0),
        Parameter("sync between nodes", -1.0, 3.0),
        Parameter("sync between nodes per device", -3.0, 3.0),
        Parameter("overlap", 0.0, 2.0),
    )

    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        level, constant, local, local_each, network, network_each, overlap = values.tolist()
        compute = at.relative_batch + np.exp(constant)
        more = np.maximum(at.devices - 2, 0.0)
        sync = np.where(
            at.nodes > 1,
            np.exp(network) + np.exp(network_each) * more,
            np.exp(local) + np.exp(local_each) * more,
        )
        sync = np.where(at.devices > 1, sync, 0.0)
        told: Floats = level + np.log(overlapped(min(overlap, _LOG_MOST), compute, sync))
        return told
