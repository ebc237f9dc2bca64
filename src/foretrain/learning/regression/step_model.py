"""End-to-end regression as a cost model of steps: `predict --model end-to-end --timings FILE`.

A regression knows whole runs only. A step is a run of as many iterations as the longest timed, over their
number; forward, backward and update share it as they share the roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretrain.errors import InvalidRequest
from foretrain.estimates import Estimate, Part
from foretrain.facts.devices import Device
from foretrain.learning.regression.end_to_end import EndToEndModel, fit
from foretrain.learning.regression.timings import Configuration, of_model, read_timings
from foretrain.prediction.operators._base import Knowledge
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.prediction.step import PricedStep, StepEstimate
from foretrain.prediction.step_models import OperatorSteps, StepModel
from foretrain.workloads.graph import Graph

NAME = "end-to-end"


@dataclass(frozen=True)
class EndToEndSteps(StepModel):
    """Steps as a fitted regression predicts them.

    `threads` and `disk_delay_seconds` None: those of all timings, which then must not differ in them.
    """

    model: EndToEndModel
    source: str
    threads: float | None = None
    disk_delay_seconds: float | None = None

    def estimate(self, graph: Graph, device: Device) -> StepEstimate:
        """The time of a step of the graph's batch on one device."""
        iterations = self._longest("iterations")
        run = Configuration(
            device.id,
            batch=graph.batch,
            threads=self._setting("threads", self.threads),
            disk_delay_seconds=self._setting("disk_delay_seconds", self.disk_delay_seconds),
            iterations=iterations,
        )
        step_seconds = self.model.predict(run).scale(1 / iterations)
        part = Part("whole step", step_seconds.p50, self.source, step_seconds.p50 - step_seconds.p10, step_seconds.p90 - step_seconds.p50)
        bound = OperatorSteps(RooflineModel.name).estimate(graph, device)
        return StepEstimate(
            estimate=Estimate("s", (part,)),
            knowledge=Knowledge.MEASURED if device.id in self.model.devices else Knowledge.EXTRAPOLATED,
            phases={phase: step_seconds.p50 * share / bound.seconds for phase, share in bound.phases.items()},
            device_seconds=step_seconds.p50,
            host_seconds=0.0,
            waiting_seconds=0.0,
            unmodelled=(),
            modelled_share=1.0,
        )

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """A regression on whole steps does not know their operators."""
        del graphs, device
        raise InvalidRequest(
            f"--model {NAME} knows whole steps on one device only; for many devices take foretrain, "
            "roofline or per-layer, or `foretrain scaling` on timings of several placements"
        )

    def _longest(self, name: str) -> float:
        """The largest value timed of a feature."""
        return self.model.fixed[name] if name in self.model.fixed else self.model.ranges[name][1]

    def _setting(self, name: str, chosen: float | None) -> float:
        if chosen is not None:
            return chosen
        if name in self.model.fixed:
            return self.model.fixed[name]
        low, high = self.model.ranges[name]
        raise InvalidRequest(f"the timings differ in {name} ({low:g} to {high:g}): give the one to predict")


def end_to_end_steps(
    file: Path, model: str = "", threads: float | None = None, disk_delay_seconds: float | None = None
) -> EndToEndSteps:
    """The cost model fitted to a file of timings; `model` is needed where it has several networks."""
    timings = read_timings(file)
    if len({timing.model for timing in timings}) > 1:
        timings = of_model(timings, model)
    return EndToEndSteps(fit(timings), f"end-to-end regression on {file.name}", threads, disk_delay_seconds)
