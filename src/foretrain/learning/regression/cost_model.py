"""End-to-end regression as a cost model of steps: `cost_model` end-to-end with `timings`.

A regression knows whole runs only. A step is a run of as many iterations as the longest timed, over their
number; forward, backward and update share it as they share the roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from foretrain.errors import InvalidRequest
from foretrain.facts.devices import Device
from foretrain.learning.regression.end_to_end import EndToEndModel, fit
from foretrain.learning.regression.timings import Configuration, of_model, read_timings
from foretrain.prediction.cost_models.priced_step import PricedStep
from foretrain.prediction.cost_models.step_models import CostModel, OperatorCostModel
from foretrain.prediction.operators._base import Confidence, Knowledge
from foretrain.prediction.operators.roofline import RooflineModel
from foretrain.workloads.graph import Graph

NAME = "end-to-end"


@dataclass(frozen=True)
class EndToEndSteps(CostModel):
    """Steps as a fitted regression predicts them.

    `threads` and `disk_delay_seconds` None: those of all timings, which then must not differ in them.
    """

    model: EndToEndModel
    source: str
    threads: float | None = None
    disk_delay_seconds: float | None = None

    knows_operators: ClassVar[bool] = False

    def priced_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """Steps of the graphs' batches on one device; phases share the time as they share the roofline."""
        return tuple(self._priced(graph, device) for graph in graphs)

    def _priced(self, graph: Graph, device: Device) -> PricedStep:
        iterations = self._longest("iterations")
        run = Configuration(
            device.id,
            batch=graph.batch,
            threads=self._setting("threads", self.threads),
            disk_delay_seconds=self._setting("disk_delay_seconds", self.disk_delay_seconds),
            iterations=iterations,
        )
        seconds = self.model.predict(run).scale(1 / iterations)
        knowledge = Knowledge.MEASURED if device.id in self.model.devices else Knowledge.EXTRAPOLATED
        whole = Confidence(knowledge, seconds.p10 / seconds.p50, seconds.p90 / seconds.p50, self.source)
        bound = OperatorCostModel(RooflineModel.name).priced(graph, device)
        share = seconds.p50 / float(bound.priced.seconds.sum())
        return replace(bound.scale(share), whole=whole)

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
