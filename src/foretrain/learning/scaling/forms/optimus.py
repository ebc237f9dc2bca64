"""Optimus's speed of synchronous training: 1 / (a M/w + b + c w/p + d w + e p).

w workers and p parameter servers. All-reduce has no servers; a node's network card does their work, so that p
is the number of nodes here. Terms are at least 0.

Reference: Y. Peng et al., Optimus: an efficient dynamic resource scheduler for deep learning clusters,
EuroSys 2018, equation 4.
"""

from __future__ import annotations

import numpy as np

from foretrain.learning.scaling.columns import Columns
from foretrain.learning.scaling.forms._base import LEVEL, LEVEL_DEVIATION, Form, Parameter
from foretrain.prediction.operators.listing import Floats


class Optimus(Form):
    """See the module; b to e are over a, which is the level."""

    name = "optimus"
    equation = "a M/w + b + c w/p + d w + e p"
    parameters = (
        Parameter(LEVEL, 0.0, LEVEL_DEVIATION),
        Parameter("constant", -1.0, 3.0),
        Parameter("workers per server", -3.0, 3.0),
        Parameter("workers", -3.0, 3.0),
        Parameter("servers", -3.0, 3.0),
    )

    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        level, constant, per_server, workers, servers = values.tolist()
        told: Floats = level + np.log(
            at.relative_batch
            + np.exp(constant)
            + np.exp(per_server) * at.devices / at.nodes
            + np.exp(workers) * at.devices
            + np.exp(servers) * at.nodes
        )
        return told
