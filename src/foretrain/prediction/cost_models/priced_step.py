"""A priced step.

One training step on one device: priced operators, launched in order by a host.

The parts of the estimate are the device time of every kind of operator in every phase, and the time the
device waits for launches; they sum to the step.

How long each call of a step takes on the device, and on the host that launches it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.prediction.cost_models.launches import Execution, steady_step, synchronised_step
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.host import HostModel
from foretrain.prediction.operators.listing import KINDS, PHASES, Floats, Listing, listing_of
from foretrain.prediction.operators.mixed_precision import Correction
from foretrain.prediction.operators.pricing import PricedOps, price_all
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import Kind
from foretrain.workloads.rules import unknown_names

WAITING = "waiting for launches"
_SMALL = 0.1
"""An operator slower than ten times the roofline is bound by its own start, not by the device's limits."""


class Binding(StrEnum):
    """What binds an operator on a device."""

    ARITHMETIC = "arithmetic"
    BANDWIDTH = "bandwidth"
    SIZE = "size"


@dataclass(frozen=True)
class StepEstimate:
    """Time of a step with its parts; `phases` are the device's time from phase to phase, waits included.

    `binding` is the device time of operators by what binds them: arithmetic, bandwidth, or neither; `basis`
    says which of the user's own timings had a say.
    """

    estimate: Estimate
    knowledge: Knowledge
    phases: dict[Phase, float]
    device_seconds: float
    host_seconds: float
    waiting_seconds: float
    unmodelled: tuple[str, ...]
    modelled_share: float
    binding: Mapping[Binding, float] = field(default_factory=dict)
    basis: str = ""

    @property
    def seconds(self) -> float:
        """The median."""
        return self.estimate.value


@dataclass(frozen=True, eq=False)
class PricedStep:
    """The operators of a step with their device time, and the time the host takes to launch each."""

    graph: Graph
    priced: PricedOps
    launching: Floats
    host: HostModel
    basis: str = ""

    @property
    def knowledge(self) -> Knowledge:
        """What the least known of its kinds rests on."""
        return _knowledge(self.priced)

    def scale(self, factor: float, basis: str) -> PricedStep:
        """All times by a factor that somebody's own timings ask for."""
        priced = replace(self.priced, seconds=self.priced.seconds * factor)
        return replace(self, priced=priced, launching=self.launching * factor, basis=basis)


def price_step(
    graph: Graph,
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    correction: Correction | None = None,
) -> PricedStep:
    """Price the operators of a step; `correction` has the last word on the prices."""
    return price_steps((graph,), device, models, host, (correction,))[0]


def price_steps(
    graphs: Sequence[Graph],
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    corrections: Sequence[Correction | None],
) -> tuple[PricedStep, ...]:
    """Several steps on one device, priced together."""
    listings = [listing_of(graph) for graph in graphs]
    found = []
    for graph, priced, correct in zip(graphs, price_all(listings, device, models), corrections, strict=True):
        told = priced if correct is None else correct(priced, device)
        found.append(PricedStep(graph, told, _launching(told.listing, host, graph), host))
    return tuple(found)


def estimate_step(
    graph: Graph,
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    synchronised: bool = False,
    correction: Correction | None = None,
) -> StepEstimate:
    """The time of one training step of `graph` on `device`."""
    return step_estimate(price_step(graph, device, models, host, correction), synchronised)


def step_estimate(step: PricedStep, synchronised: bool = False) -> StepEstimate:
    """The time of a priced step on one device."""
    priced, launching, host = step.priced, step.launching, step.host
    run = (synchronised_step if synchronised else steady_step)(launching, priced.seconds)
    busy = float(priced.seconds.sum())
    return StepEstimate(
        estimate=Estimate("s", tuple(_parts(priced, run, host))),
        knowledge=_knowledge(priced),
        phases=_phases(priced.listing, run),
        device_seconds=busy,
        host_seconds=float(launching.sum()),
        waiting_seconds=float(run.waits.sum()),
        unmodelled=unknown_names(priced.ops),
        modelled_share=modelled_share(priced),
        binding=_binding(priced),
    )


def modelled_share(priced: PricedOps) -> float:
    """How much of the device's time is that of operators some rule knows."""
    busy = float(priced.seconds.sum())
    return 1 - float(priced.seconds[priced.listing.is_unknown].sum()) / busy if busy else 1.0


def _launching(listing: Listing, host: HostModel, graph: Graph) -> Floats:
    """Host time of each operator; a captured graph is launched once, with its first one."""
    each = host.seconds(listing, bool(graph.settings.get("compile")))
    if graph.settings.get("cuda_graphs") and len(each):
        each = np.append(each.max(), np.zeros(len(each) - 1))
    return each


def _parts(priced: PricedOps, run: Execution, host: HostModel) -> Iterator[Part]:
    yield from kind_parts(priced)
    waiting = float(run.waits.sum())
    if waiting > 0:
        yield waiting_part(waiting, host)


def kind_parts(priced: PricedOps) -> Iterator[Part]:
    """The device time of every kind of operator in every phase."""
    listing = priced.listing
    both = listing.phases * len(KINDS) + listing.kinds
    totals = np.bincount(both, priced.seconds, len(PHASES) * len(KINDS))
    _, first = np.unique(both, return_index=True)
    for place in both[np.sort(first)].tolist():  # in the order they first run
        phase, kind = PHASES[place // len(KINDS)], KINDS[place % len(KINDS)]
        if totals[place] > 0:
            name = f"{phase} {kind}" if kind is not Kind.OPTIMIZER else f"{phase} update"
            yield _spread(name, float(totals[place]), priced.confidence[kind])


def waiting_part(seconds: float, host: HostModel) -> Part:
    """The time a device waits for launches."""
    return _spread(WAITING, seconds, Confidence(Knowledge.CALIBRATED, host.p10, host.p90, host.source))


def _knowledge(priced: PricedOps) -> Knowledge:
    """What the least known of its kinds rests on."""
    found = {trust.knowledge for trust in priced.confidence.values()}
    return max(found, key=list(Knowledge).index, default=Knowledge.EXTRAPOLATED)


def _binding(priced: PricedOps) -> dict[Binding, float]:
    small = np.maximum(priced.computing, priced.moving) < _SMALL * priced.seconds
    by_arithmetic = priced.computing > priced.moving
    return {
        Binding.ARITHMETIC: float(priced.seconds[by_arithmetic & ~small].sum()),
        Binding.BANDWIDTH: float(priced.seconds[~by_arithmetic & ~small].sum()),
        Binding.SIZE: float(priced.seconds[small].sum()),
    }


def _spread(name: str, seconds: float, trust: Confidence) -> Part:
    below = seconds * min(max(1 - trust.p10, 0.0), 1.0)
    return Part(name, seconds, trust.source, below, seconds * max(trust.p90 - 1, 0.0))


def _phases(listing: Listing, run: Execution) -> dict[Phase, float]:
    found: dict[Phase, float] = {}
    before = 0.0
    for index, phase in enumerate(PHASES):
        places = np.flatnonzero(listing.phases == index)
        end = float(run.ends[places[-1]]) if len(places) else 0.0
        found[phase] = max(0.0, end - before)
        before = max(before, end)
    return found


@dataclass(frozen=True, eq=False)
class CallTimes:
    """Seconds of each call. `device` and `host` have one entry for each call of the graph."""

    device: Floats
    host: Floats

    def where(self, kept: NDArray[np.int64]) -> CallTimes:
        """The times of some calls."""
        return CallTimes(self.device[kept], self.host[kept])


def call_times(step: PricedStep) -> CallTimes:
    """The times of each call of a priced step."""
    calls = step.priced.listing.calls
    count = len(step.graph.calls)
    device = np.bincount(calls, step.priced.seconds, count).astype(float)
    host = np.bincount(calls, step.launching, count).astype(float)
    return CallTimes(device, host)
