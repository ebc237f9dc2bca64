"""What stale gradients cost: more steps to the same loss, when workers do not wait for each other.

Of P workers a server waits for the first K gradients of an update. In K-sync the others are thrown away:
nothing is stale, the batch is K/P of the whole. In K-async they go on, and an update is on average
τ = P/K - 1 updates old; K = 1 is plain asynchronous training (S. Dutta et al., "Slow and Stale Gradients Can
Win the Race", AISTATS 2018, section 2).

How many more steps staleness takes depends on the loss and the learning rate. Theory gives its limits: none
while τ is small against the steps (X. Lian et al., "Asynchronous Parallel Stochastic Gradient for Nonconvex
Optimization", NIPS 2015), and 1 + τ where the learning rate must be divided by the staleness to be stable
(W. Zhang et al., "Staleness-aware Async-SGD", IJCAI 2016). The middle, √(1 + τ), is assumed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretrain.errors import InvalidRequest
from foretrain.estimates import Quantiles

KIND = "assumed"
"""What the middle of the penalty rests on: no public measurement here says more."""


@dataclass(frozen=True)
class Waiting:
    """How many of the workers' gradients an update waits for, and whether late ones are used."""

    workers: int
    waits_for: int
    uses_late: bool

    def __post_init__(self) -> None:
        if not 1 <= self.waits_for <= self.workers:
            raise InvalidRequest(f"an update cannot wait for {self.waits_for} of {self.workers} workers")

    @property
    def mean_staleness(self) -> float:
        """Updates between reading the weights and using the gradient: P/K - 1; 0 if late ones are dropped."""
        return self.workers / self.waits_for - 1 if self.uses_late else 0.0

    @property
    def batch_share(self) -> float:
        """Share of the whole batch in one update."""
        return self.waits_for / self.workers


def staleness_penalty(waiting: Waiting) -> Quantiles:
    """Factor on the updates to target, against fresh gradients at the same batch an update."""
    return penalty_of(waiting.mean_staleness)


def penalty_of(mean_staleness: float) -> Quantiles:
    """The same for gradients that are so many updates old on average."""
    most = 1 + mean_staleness
    return Quantiles(1.0, math.sqrt(most), most)
