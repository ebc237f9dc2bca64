"""Compute and synchronisation, overlapped: the form foretrain predicts with.

With n nodes, r devices of which g are on the fullest node, and b the batch over the reference batch:

    compute = level · (s + (1 - s) b) · g^c · r^w
    sync    = level · i · 2(g-1)/g                       on one node
              level · x · 2(r-1)/r · g^h · n^k · [e^d]   on several; e^d for exactly two nodes
    step    = (compute^p + sync^p)^(1/p)

s is what a step takes whatever its batch (launches, the optimizer). c is what devices of one node take from
each other (host, memory, power), at most 0.6; w the wait for the slowest of r workers, at most 0.2. The ring
all-reduce moves 2(r-1)/r of the gradients through each link; i and x are its seconds inside a node and
between nodes over those of the compute. h is what sharing the network card costs beyond that, k what more
nodes cost. Two nodes are a case of their own: both directions of the ring use the one connection between
them, which on networks that limit a connection (a cloud's) doubles the time, and on others does nothing.
p is the overlap of synchronisation with the backward pass.

Reference: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
2009 (ring); A. Qiao et al., Pollux, OSDI 2021 (overlap by p-norm).
"""

from __future__ import annotations

import numpy as np

from foretrain.learning.scaling.columns import Columns
from foretrain.learning.scaling.forms._base import LEVEL, LEVEL_DEVIATION, Form, Parameter, overlapped, share
from foretrain.prediction.operators.listing import Floats

MOST_CONTENTION = 0.6
"""Exponent: eight devices of a node at most 3.5 times as slow as one."""
MOST_WAITING = 0.2
"""Exponent: 64 workers at most 2.3 times as slow as one."""


class Physical(Form):
    """See the module."""

    name = "physical"
    equation = "compute (fixed + per sample, contention, waiting) and ring synchronisation, overlapped"
    at_reference_batch = "fixed share"
    parameters = (
        Parameter(LEVEL, 0.0, LEVEL_DEVIATION),
        Parameter("fixed share", 0.0, 2.0),
        Parameter("sync in a node", -1.5, 1.5),
        Parameter("sync between nodes", -0.5, 1.5),
        Parameter("overlap", 0.0, 1.0),
        Parameter("waiting", -2.5, 1.5),
        Parameter("contention", -2.5, 1.5),
        Parameter("more nodes", 0.0, 0.3),
        Parameter("two nodes", 0.0, 0.5),
        Parameter("shared card", 0.0, 0.3),
    )

    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        level, fixed, inside, between, overlap, waiting, contention, nodes, two, card = values.tolist()
        at_all = share(fixed)
        compute = at_all + (1 - at_all) * at.relative_batch
        compute = compute * at.fullest ** (MOST_CONTENTION * share(contention))
        compute = compute * at.devices ** (MOST_WAITING * share(waiting))
        in_a_node = np.exp(inside) * _ring(at.fullest)
        across = np.exp(between) * _ring(at.devices) * at.fullest**card * at.nodes**nodes
        across = across * np.where(at.nodes == 2, np.exp(two), 1.0)
        sync = np.where(at.nodes > 1, across, in_a_node)
        told: Floats = level + np.log(overlapped(overlap, compute, sync))
        return told


def _ring(devices: Floats) -> Floats:
    passed: Floats = 2 * (devices - 1) / devices
    return passed
