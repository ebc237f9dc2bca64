"""Cost models: a training step on one device, its operators priced and launched in order by a host.

`predict` takes a cost model by name or as an object. `OperatorCostModel` prices the operators one by one.
Others predict whole steps only, such as a regression on a user's own timings; they are defined where they
are fitted. The user's own profiles and timings correct the default model (`corrections`).

The parts of the estimate are the device time of every kind of operator in every phase, and the time that the
device waits for launches (`operators.host`); they sum to the step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from foretrain.estimates import Z90, Estimate, Part
from foretrain.facts.devices import Device
from foretrain.facts.frameworks import frameworks
from foretrain.prediction.operators import mixed_precision
from foretrain.prediction.operators.host import (
    Execution,
    HostModel,
    host_model,
    steady_step,
    synchronise_step,
)
from foretrain.prediction.operators.pricing import (
    DEFAULT,
    KINDS,
    PHASES,
    Confidence,
    Floats,
    Knowledge,
    Listing,
    OperatorModel,
    PricedOps,
    listing_of,
    operator_models,
    price_all,
)
from foretrain.workloads.graph import Graph, Phase, once_per_graph
from foretrain.workloads.ops import Kind

WAITING = "waiting for launches"
WHOLE = "whole step"
_SMALL = 0.1
"""Share of the roofline below which an operator is bound by its start-up."""
_DEVICES_KEPT = 8
"""Devices on which a graph keeps its prices."""
NO_HOST = HostModel(
    forward_seconds=0.0,
    library_seconds=0.0,
    backward_seconds=0.0,
    optimizer_seconds=0.0,
    compiled_call_seconds=0.0,
    compiled_kernel_seconds=0.0,
    compiled_library_seconds=0.0,
    captured_seconds=0.0,
    p10=1.0,
    p90=1.0,
    source="none",
)
"""A host without launch overhead, for models that do not model it."""


class Binding(StrEnum):
    """The limit of an operator on a device."""

    ARITHMETIC = "arithmetic"
    BANDWIDTH = "bandwidth"
    SIZE = "size"


@dataclass(frozen=True)
class StepEstimate:
    """Time of a step with its parts; `phases` is device time by phase, including waits.

    `binding` is the device time of operators by their limit: arithmetic, bandwidth or size; `basis` describes
    the user's own timings that corrected it.
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


@dataclass(frozen=True, slots=True)
class TimingEvidence:
    """The effect of the user's own timings: their basis, knowledge, and a narrower interval.

    `narrowing` is the width of the interval relative to that of the prediction alone; `spread`, if known, the
    standard deviation of the logarithm of measured over predicted.
    """

    basis: str
    knowledge: Knowledge | None = None
    narrowing: float = 1.0
    spread: float | None = None


@dataclass(frozen=True, eq=False)
class PricedStep:
    """The operators of a step with device time and launch time.

    `whole` is the confidence of a step of which only the total is known: its time is divided over the
    operators in proportion to the roofline. `is_shipped`: priced by the default models, whose spread between
    sources is known.
    """

    graph: Graph
    priced: PricedOps
    launching: Floats
    host: HostModel
    evidence: TimingEvidence | None = None
    whole: Confidence | None = None
    is_shipped: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether only the sum of the operators is meaningful."""
        return self.whole is not None

    @property
    def basis(self) -> str:
        """The user's timings that corrected the step; empty if there are none."""
        return "" if self.evidence is None else self.evidence.basis

    @property
    def knowledge(self) -> Knowledge:
        """The knowledge of the least known kind of operator."""
        if self.whole is not None:
            return self.whole.knowledge
        if self.evidence is not None and self.evidence.knowledge is not None:
            return self.evidence.knowledge
        return _knowledge(self.priced)

    def scale(self, factor: float) -> PricedStep:
        """The step with all times multiplied by a factor."""
        priced = replace(self.priced, seconds=self.priced.seconds * factor)
        return replace(self, priced=priced, launching=self.launching * factor)


@dataclass(frozen=True, eq=False)
class CallTimes:
    """Seconds of each call of the graph, on the device and on the host."""

    device: Floats
    host: Floats

    def where(self, calls: NDArray[np.int64]) -> CallTimes:
        """The times of some calls."""
        return CallTimes(self.device[calls], self.host[calls])


def call_times(step: PricedStep) -> CallTimes:
    """The times of the calls of a priced step."""
    calls = step.priced.listing.calls
    count = len(step.graph.calls)
    device = np.bincount(calls, step.priced.seconds, count).astype(float)
    host = np.bincount(calls, step.launching, count).astype(float)
    return CallTimes(device, host)


def price_step(
    graph: Graph,
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    correction: mixed_precision.Correction | None = None,
) -> PricedStep:
    """Price the operators of a step and apply a correction."""
    return price_steps((graph,), device, models, host, (correction,))[0]


def price_steps(
    graphs: Sequence[Graph],
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    corrections: Sequence[mixed_precision.Correction | None],
) -> tuple[PricedStep, ...]:
    """Several steps on one device, priced together."""
    listings = [listing_of(graph) for graph in graphs]
    steps = []
    for graph, priced, correct in zip(graphs, price_all(listings, device, models), corrections, strict=True):
        final = priced if correct is None else correct(priced, device)
        steps.append(PricedStep(graph, final, _launching(final.listing, host, graph), host))
    return tuple(steps)


def estimate_step(
    graph: Graph,
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    synchronised: bool = False,
    correction: mixed_precision.Correction | None = None,
) -> StepEstimate:
    """The time of one training step of `graph` on `device`."""
    return step_estimate(price_step(graph, device, models, host, correction), synchronised)


def step_estimate(step: PricedStep, synchronised: bool = False) -> StepEstimate:
    """The time of a priced step on one device."""
    priced = step.priced
    run = (synchronise_step if synchronised else steady_step)(step.launching, priced.seconds)
    waiting = float(run.waits.sum())
    return StepEstimate(
        estimate=Estimate("s", computing_parts(step, priced.seconds, waiting)),
        knowledge=step.knowledge,
        phases=_phases(priced.listing, run),
        device_seconds=float(priced.seconds.sum()),
        host_seconds=float(step.launching.sum()),
        waiting_seconds=waiting,
        unmodelled=() if step.is_whole else priced.listing.unknown_names,
        modelled_share=1.0 if step.is_whole else modelled_share(priced),
        binding=binding(step),
        basis=step.basis,
    )


def launched_phases(step: PricedStep) -> dict[Phase, float]:
    """Device time by phase in a steady step, including waits for launches."""
    return _phases(step.priced.listing, steady_step(step.launching, step.priced.seconds))


def modelled_share(priced: PricedOps) -> float:
    """Share of the device's time in operators that have a rule."""
    busy = float(priced.seconds.sum())
    return 1 - float(priced.seconds[priced.listing.is_unknown].sum()) / busy if busy else 1.0


def _launching(listing: Listing, host: HostModel, graph: Graph) -> Floats:
    """Host time of each operator; a captured graph is launched once, with its first operator."""
    run_by = frameworks()[graph.options.framework]
    each = host.seconds(listing, graph.options.compile, run_by.python_functions)
    each = each * (host.framework_factor if run_by.timed_host else run_by.host_factor)
    if graph.options.cuda_graphs and len(each):
        each = np.append(host.captured_seconds, np.zeros(len(each) - 1))
    return each


def exchange_launch_seconds(step: PricedStep) -> float:
    """Host time of starting one exchange; none if a captured graph holds it."""
    if step.graph.options.cuda_graphs:
        return 0.0
    is_slow = frameworks()[step.graph.options.framework].timed_host
    return step.host.exchange_seconds * (step.host.framework_factor if is_slow else 1.0)


def computing_parts(step: PricedStep, seconds: Floats, waiting: float) -> tuple[Part, ...]:
    """The device time of every kind of operator in every phase, and the wait for launches.

    `seconds` are the times of the operators for all micro-batches of a step.
    """
    if step.whole is not None:
        whole = step.whole
        return (Part.within(WHOLE, float(seconds.sum()), whole.source, whole.p10, whole.p90),)
    parts = [*kind_parts(replace(step.priced, seconds=seconds))]
    if waiting > 0:
        parts.append(waiting_part(waiting, step.host))
    return tuple(parts) if step.evidence is None else narrow(parts, step.evidence)


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
            trust = priced.confidence[kind]
            yield Part.within(name, float(totals[place]), trust.source, trust.p10, trust.p90)


def waiting_part(seconds: float, host: HostModel) -> Part:
    """The time a device waits for launches."""
    return Part.within(WAITING, seconds, host.source, host.p10, host.p90)


def narrow(parts: Sequence[Part], evidence: TimingEvidence) -> tuple[Part, ...]:
    """Intervals by the factor of the evidence, which may widen, or narrowed to the spread of the ratios."""
    factor = evidence.narrowing
    if evidence.spread is not None:
        quantiles = Estimate("s", tuple(parts)).quantiles
        width = (quantiles.p90 - quantiles.p10) / 2
        # Half of p90 - p10 of a log-normal: median · (e^(z σ) - e^(-z σ)) / 2.
        target = quantiles.p50 * np.sinh(Z90 * evidence.spread)
        factor = min(1.0, float(target) / width) if width > 0 else 1.0
    return tuple(
        replace(part, below=min(part.below * factor, part.value), above=part.above * factor) for part in parts
    )


def _knowledge(priced: PricedOps) -> Knowledge:
    """The knowledge of the least known kind of operator."""
    known = {trust.knowledge for trust in priced.confidence.values()}
    return max(known, key=list(Knowledge).index, default=Knowledge.EXTRAPOLATED)


def binding(step: PricedStep) -> dict[Binding, float]:
    """Device time of operators by their limit; empty for a step known only as a whole."""
    priced = step.priced
    if step.is_whole:
        return {}
    small = np.maximum(priced.computing, priced.moving) < _SMALL * priced.seconds
    by_arithmetic = priced.computing > priced.moving
    return {
        Binding.ARITHMETIC: float(priced.seconds[by_arithmetic & ~small].sum()),
        Binding.BANDWIDTH: float(priced.seconds[~by_arithmetic & ~small].sum()),
        Binding.SIZE: float(priced.seconds[small].sum()),
    }


def _phases(listing: Listing, run: Execution) -> dict[Phase, float]:
    phases: dict[Phase, float] = {}
    before = 0.0
    for index, phase in enumerate(PHASES):
        places = np.flatnonzero(listing.phases == index)
        end = float(run.ends[places[-1]]) if len(places) else 0.0
        phases[phase] = max(0.0, end - before)
        before = max(before, end)
    return phases


class CostModel(ABC):
    """Estimates the time of one training step on one device.

    `knows_operators` False: only whole steps on one device can be predicted, not parallel ones.
    """

    knows_operators: ClassVar[bool] = True

    @abstractmethod
    def price_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times.

        Steps that differ only in their batch are priced much faster together than one by one.
        """

    @final
    def price(self, graph: Graph, device: Device) -> PricedStep:
        """The operators of one step with their times."""
        return self.price_all((graph,), device)[0]

    @final
    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        """The time of a step."""
        return step_estimate(self.price(graph, device))


@once_per_graph
def _prices(graph: Graph) -> dict[tuple[CostModel, Device], PricedStep]:
    """The prices of a graph: the step is composed anew for other layouts, links and devices, not priced."""
    del graph
    return {}


@dataclass(frozen=True)
class OperatorCostModel(CostModel):
    """Operators priced by the models of a name in `operators.pricing`, launched by a host.

    `host` None: the calibrated host for the default models on a GPU. Other models are used as published,
    without a host; on a CPU the call is part of the price of an operator.
    """

    choice: str = DEFAULT
    host: HostModel | None = None

    def price_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """The operators of steps with their times; a graph keeps its prices on the last devices."""
        key = self, device
        new = [graph for graph in graphs if key not in _prices(graph)]
        for graph, step in zip(new, self._price(new, device), strict=True):
            known = _prices(graph)
            known[key] = step
            # The oldest goes first: a guide prices one graph on a hundred devices.
            if len(known) > _DEVICES_KEPT:
                del known[next(iter(known))]
        return tuple(_prices(graph)[key] for graph in graphs)

    def _price(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        if not graphs:
            return ()
        models = operator_models(device, self.choice)
        is_corrected = self.choice == DEFAULT
        corrections = [
            mixed_precision.choose_correction(graph, device) if is_corrected else None for graph in graphs
        ]
        steps = price_steps(graphs, device, models, self.host or self._host(device), corrections)
        return tuple(replace(step, is_shipped=is_corrected) for step in steps)

    def _host(self, device: Device) -> HostModel:
        is_launched = self.choice == DEFAULT and not device.is_cpu
        return host_model(device) if is_launched else NO_HOST
