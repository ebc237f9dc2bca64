"""Forms of step time over placements and batch sizes, with few parameters that are fitted to timings.

Times are of one job, so everything is relative: the first parameter of each form is the logarithm of its
level, which no prior knows; batch sizes are over the job's reference batch; and the other parameters are pure
numbers, which is why what was learned on one job applies to another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrain.errors import UnknownName
from foretrain.learning.scaling.configurations import Columns
from foretrain.prediction.operators.pricing import Floats

LEVEL = "level"
LEVEL_DEVIATION = 10.0
"""In logarithms: any time between microseconds and days is as likely as any other."""
_STEEPEST = 3.0
"""Steeper ones are the longer of the two alone, and their exponents overflow."""
MOST_CONTENTION = 0.6
"""Exponent: eight devices of a node at most 3.5 times as slow as one."""
MOST_WAITING = 0.2
"""Exponent: 64 workers at most 2.3 times as slow as one."""
_LOG_MOST = float(np.log(9.0))


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, and how it lies before anything was timed: a normal distribution, wide."""

    name: str
    mean: float
    deviation: float


class Form(ABC):
    """A formula of step time."""

    name: str
    equation: str
    parameters: tuple[Parameter, ...]
    at_reference_batch: str = ""
    """The parameter that would be another one at another reference batch, if there is one."""

    @abstractmethod
    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        """Logarithms of step times, given the parameters' values in their order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)

    def named(self, values: Floats) -> Mapping[str, float]:
        """Values by name of the parameter."""
        return dict(zip(self.names, values.tolist(), strict=True))


def share(logit: float) -> float:
    """A number between 0 and 1 from one without bounds."""
    return float(1 / (1 + np.exp(-logit)))


def overlap_seconds(log_power: float, one: Floats, other: Floats) -> Floats:
    """(one^p + other^p)^(1/p) with p = 1 + exp(log_power): their sum at p = 1, the longer one at p = ∞.

    p ends at 21, where the longer one alone is left to 3 %.
    """
    power = 1 + np.exp(np.clip(log_power, None, _STEEPEST))
    longer = np.maximum(one, other)
    result: Floats = longer * ((one / longer) ** power + (other / longer) ** power) ** (1 / power)
    return result


class Physical(Form):
    """Compute and synchronisation, overlapped: the form foretrain predicts with.

    With n nodes, r devices of which g are on the fullest node, and b the batch over the reference batch:

        compute = level · (s + (1 - s) b) · g^c · r^w
        sync    = level · i · 2(g-1)/g                       on one node
                  level · x · 2(r-1)/r · g^h · n^k · [e^d]   on several; e^d for exactly two nodes
        step    = (compute^p + sync^p)^(1/p)

    s is the share of a step that does not depend on its batch (launches, the optimizer). c is what devices of
    one node take from each other (host, memory, power), at most 0.6; w the wait for the slowest of r workers,
    at most 0.2. The ring all-reduce moves 2(r-1)/r of the gradients through each link; i and x are its
    seconds inside a node and between nodes over those of the compute. h is the cost of sharing the network
    card beyond that, k the cost of more nodes. Two nodes are a case of their own: both directions of the ring
    use the one connection between them, which on networks that limit a connection (a cloud's) doubles the
    time, and on others has no effect. p is the overlap of synchronisation with the backward pass.

    Reference: P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
    2009 (ring); A. Qiao et al., Pollux, OSDI 2021 (overlap by p-norm).
    """

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
        log_seconds: Floats = level + np.log(overlap_seconds(overlap, compute, sync))
        return log_seconds


def _ring(devices: Floats) -> Floats:
    passed: Floats = 2 * (devices - 1) / devices
    return passed


class Ring(Form):
    """The simple fit: compute linear in the batch and a ring's synchronisation, overlapped by a p-norm.

        step = ((α + β batch)^p + (κ 2(r-1)/r)^p)^(1/p)     κ for one node, another for several

    All terms are over β, which is the level.
    """

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
        log_seconds: Floats = level + np.log(overlap_seconds(overlap, compute, sync))
        return log_seconds


class Pollux(Form):
    """Pollux's throughput model: step = (T_grad^γ + T_sync^γ)^(1/γ).

        T_grad = α + β batch
        T_sync = 0 (one device), α_l + β_l (r-2) (one node), α_n + β_n (r-2) (several)

    r devices; γ from 1 (in sequence) to 10 (overlapped). Terms are at least 0, and over β, which is the
    level.

    Reference: A. Qiao et al., Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning,
    OSDI 2021, section 3.2.
    """

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
        log_seconds: Floats = level + np.log(overlap_seconds(min(overlap, _LOG_MOST), compute, sync))
        return log_seconds


class OptimusScaling(Form):
    """Optimus's speed of synchronous training: 1 / (a M/w + b + c w/p + d w + e p).

    w workers and p parameter servers. All-reduce has no servers; a node's network card does their work, so p
    is the number of nodes here. Terms are at least 0; b to e are over a, which is the level.

    Reference: Y. Peng et al., Optimus: an efficient dynamic resource scheduler for deep learning clusters,
    EuroSys 2018, equation 4.
    """

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
        log_seconds: Floats = level + np.log(
            at.relative_batch
            + np.exp(constant)
            + np.exp(per_server) * at.devices / at.nodes
            + np.exp(workers) * at.devices
            + np.exp(servers) * at.nodes
        )
        return log_seconds


class Sanghvi(Form):
    """The linear regression of step time f = a0 M/g + a1 g + a2.

    M samples are divided over g devices; M/g is the batch of a device. Terms are at least 0; a1 and a2 are
    over a0, which is the level.

    Reference: K. B. Sanghvi, Prediction & Cost Analysis of Distributed Deep Learning Jobs in a Multi-GPU
    Setting, section V.
    """

    name = "sanghvi"
    equation = "a0 M/g + a1 g + a2"
    parameters = (
        Parameter(LEVEL, 0.0, LEVEL_DEVIATION),
        Parameter("per device", -2.0, 3.0),
        Parameter("constant", -1.0, 3.0),
    )

    def log_seconds(self, values: Floats, at: Columns) -> Floats:
        level, per_device, constant = values.tolist()
        log_seconds: Floats = level + np.log(
            at.relative_batch + np.exp(per_device) * at.devices + np.exp(constant)
        )
        return log_seconds


FORMS: Mapping[str, Form] = {
    form.name: form for form in (Physical(), Ring(), Pollux(), OptimusScaling(), Sanghvi())
}


def form(name: str) -> Form:
    """The form of that name."""
    if name not in FORMS:
        raise UnknownName("form", name, FORMS, f"Forms: {', '.join(FORMS)}")
    return FORMS[name]
