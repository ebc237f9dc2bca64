"""One training step on one device: priced operators, launched in order by a host.

The parts of the estimate are the device time of every kind of operator in every phase, and the time the
device waits for launches; they sum to the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.prediction.host import HostModel
from foretrain.prediction.launching import Execution, steady_step, synchronised_step
from foretrain.prediction.operators._base import Confidence, Knowledge, OperatorModel
from foretrain.prediction.operators.pricing import PricedOps, price
from foretrain.workloads.graph import Graph, Phase
from foretrain.workloads.ops import Kind, Op
from foretrain.workloads.rules import operators, unknown_names

WAITING = "waiting for launches"


@dataclass(frozen=True)
class StepEstimate:
    """Time of a step with its parts; `phases` are the device's time from phase to phase, waits included.

    `arithmetic_seconds`: device time of operators bound by arithmetic rather than by memory bandwidth.
    """

    estimate: Estimate
    knowledge: Knowledge
    phases: dict[Phase, float]
    device_seconds: float
    host_seconds: float
    waiting_seconds: float
    unmodelled: tuple[str, ...]
    modelled_share: float
    arithmetic_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The median."""
        return self.estimate.value


def estimate_step(
    graph: Graph,
    device: Device,
    models: Sequence[OperatorModel],
    host: HostModel,
    synchronised: bool = False,
) -> StepEstimate:
    """The time of one training step of `graph` on `device`."""
    priced = price(operators(graph), device, models)
    launching = host.seconds(priced.ops, bool(graph.settings.get("compile")))
    run = (synchronised_step if synchronised else steady_step)(launching, priced.seconds)
    unknown = np.array([op.work.kind is Kind.UNKNOWN for op in priced.ops], bool)
    busy = float(priced.seconds.sum())
    return StepEstimate(
        estimate=Estimate("s", tuple(_parts(priced, run, host))),
        knowledge=max((found.knowledge for found in priced.confidence.values()), key=list(Knowledge).index),
        phases=_phases(priced.ops, run),
        device_seconds=busy,
        host_seconds=float(launching.sum()),
        waiting_seconds=float(run.waits.sum()),
        unmodelled=unknown_names(priced.ops),
        modelled_share=1 - float(priced.seconds[unknown].sum()) / busy if busy else 1.0,
        arithmetic_seconds=float(priced.seconds[priced.by_arithmetic].sum()),
    )


def _parts(priced: PricedOps, run: Execution, host: HostModel) -> Iterator[Part]:
    totals: dict[tuple[Phase, Kind], float] = defaultdict(float)
    for op, seconds in zip(priced.ops, priced.seconds, strict=True):
        if op.work.kernels:
            totals[op.phase, op.work.kind] += float(seconds)
    for (phase, kind), seconds in totals.items():
        yield _spread(f"{phase} {kind}", seconds, priced.confidence[kind])
    waiting = float(run.waits.sum())
    if waiting > 0:
        trust = Confidence(Knowledge.CALIBRATED, host.p10, host.p90, host.source)
        yield _spread(WAITING, waiting, trust)


def _spread(name: str, seconds: float, trust: Confidence) -> Part:
    below = seconds * min(max(1 - trust.p10, 0.0), 1.0)
    return Part(name, seconds, trust.source, below, seconds * max(trust.p90 - 1, 0.0))


def _phases(ops: Sequence[Op], run: Execution) -> dict[Phase, float]:
    ends = dict.fromkeys(Phase, 0.0)
    for phase in Phase:
        places = [index for index, op in enumerate(ops) if op.phase is phase]
        if places:
            ends[phase] = float(run.ends[places[-1]])
    found: dict[Phase, float] = {}
    before = 0.0
    for phase in Phase:
        found[phase] = max(0.0, ends[phase] - before)
        before = max(before, ends[phase])
    return found
