"""Learned models as prices: of a step for `predict`, of jobs for a scheduler.

A regression knows whole timings only. A step is a run of as many iterations as the longest timed, over their
number; forward, backward and update share it as they share the roofline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.estimates import Quantiles
from foretrain.facts.devices import Device
from foretrain.learning.regression.columns import (
    BATCH,
    DEVICE,
    GPUS,
    ITERATIONS,
    MODEL,
    PREDICTED,
    Feature,
)
from foretrain.learning.regression.learn import LEAST_TO_CHOOSE, fit_technique
from foretrain.learning.regression.model import Evidence, LearnedModel, is_model_file, load
from foretrain.learning.regression.selection import RANDOM, judge
from foretrain.learning.regression.table import TimingTable, read_table, sample_of
from foretrain.learning.regression.techniques._base import techniques
from foretrain.prediction.cost_models import CostModel, OperatorCostModel, PricedStep, step_estimate
from foretrain.prediction.operators.pricing import Confidence, Knowledge, RooflineModel
from foretrain.workloads.graph import Graph

NAME = "end-to-end"
TARGET = "seconds"
_TECHNIQUE = "linear"
_WITHOUT_EVIDENCE = (0.5, 2.0)
"""Assumed interval of a regression on three or four timings, which leave nothing to judge it on."""


@dataclass(frozen=True)
class LearnedSteps(CostModel):
    """Steps as a learned model predicts them; `given` answers for columns that a step does not have."""

    model: LearnedModel
    source: str
    network: str = ""
    given: Mapping[str, float | str] = field(default_factory=dict)

    knows_operators: ClassVar[bool] = False

    def price_all(self, graphs: Sequence[Graph], device: Device) -> tuple[PricedStep, ...]:
        """Steps of the graphs' batches on one device; phases share the time as they share the roofline."""
        return tuple(self._priced(graph, device) for graph in graphs)

    def _priced(self, graph: Graph, device: Device) -> PricedStep:
        iterations = self._iterations()
        row = self._row(graph, device, iterations)
        seconds = self.model.predict([row])[0].scale(1 / iterations)
        knowledge = Knowledge.EXTRAPOLATED if self.model.beyond(row) else Knowledge.MEASURED
        whole = Confidence(knowledge, seconds.p10 / seconds.p50, seconds.p90 / seconds.p50, self.source)
        bound = OperatorCostModel(RooflineModel.name).price(graph, device)
        share = seconds.p50 / float(bound.priced.seconds.sum())
        return replace(bound.scale(share), whole=whole)

    def _row(self, graph: Graph, device: Device, iterations: float) -> dict[str, object]:
        known: dict[str, object] = {BATCH: graph.batch, DEVICE: device.id, GPUS: 1, ITERATIONS: iterations}
        if self.network:
            known[MODEL] = self.network
        if self.model.schema.with_role(PREDICTED) is not None:
            known[PREDICTED] = step_estimate(OperatorCostModel().price(graph, device)).seconds
        return {**known, **self._settings()}

    def _settings(self) -> dict[str, float | str]:
        """The values of columns that are no part of a step: as given, or those of all timings."""
        answered = {BATCH, DEVICE, GPUS, ITERATIONS, MODEL, PREDICTED}
        settings = {**dict(self.given)}
        for feature in self.model.schema.features:
            if feature.of_device or feature.role in answered or feature.name in settings:
                continue
            span = ", ".join(feature.categories) or f"{feature.low:g} to {feature.high:g}"
            raise InvalidRequest(
                f"the timings differ in {feature.name} ({span}), which `predict` does not know: learn a "
                "model of timings that agree in it"
            )
        return settings

    def _iterations(self) -> float:
        feature = self.model.schema.with_role(ITERATIONS)
        if feature is not None:
            return feature.high
        fixed = [value for name, value in self.model.schema.fixed.items() if Feature(name).role == ITERATIONS]
        return float(fixed[0]) if fixed else 1.0


def learned_steps(
    file: Path, network: str = "", given: Mapping[str, float | str] | None = None
) -> LearnedSteps:
    """The cost model of a saved model, or of a table of timings that is fitted now."""
    if is_model_file(file):
        return LearnedSteps(
            load(file), f"model learned from {load(file).evidence.source}", network, given or {}
        )
    return timed_steps(file, network, given)


def timed_steps(
    file: Path, network: str = "", given: Mapping[str, float | str] | None = None
) -> LearnedSteps:
    """The end-to-end regression of a table with a column `seconds`; `network` where it has several."""
    table = _of_network(read_table(file), network)
    sample = sample_of(table, TARGET, tuple(name for name in table.columns if name != TARGET))
    source = f"end-to-end regression on {file.name}"
    technique = techniques()[_TECHNIQUE]
    if len(sample) >= LEAST_TO_CHOOSE:
        return LearnedSteps(
            fit_technique(sample, judge(sample, RANDOM, [technique])[0]), source, network, given or {}
        )
    parameters = technique.grid()[0]
    model = LearnedModel(
        technique.name, parameters, TARGET, sample.schema, technique.fit(sample, parameters),
        Evidence(sample.source, sample.timings, len(sample), "none"), *_WITHOUT_EVIDENCE,
    )  # fmt: skip
    return LearnedSteps(model, source, network, given or {})


def _of_network(table: TimingTable, network: str) -> TimingTable:
    """The rows of one network, without the column that names it."""
    column = next((name for name in table.columns if Feature(name).role == MODEL), None)
    if column is None:
        return table
    names = sorted(set(table.columns[column]))
    if len(names) > 1 and network not in names:
        raise UnknownName("timed model", network, names, f"Timed: {', '.join(names)}")
    chosen = network if len(names) > 1 else names[0]
    rows = [row for row, name in enumerate(table.columns[column]) if name == chosen]
    kept = table.take(rows)
    return replace(kept, columns={name: cells for name, cells in kept.columns.items() if name != column})


def price_jobs(model: LearnedModel, jobs: Sequence[Mapping[str, object]]) -> tuple[Quantiles, ...]:
    """The learned target of (job, device, gpus) rows: what a scheduler asks of a saved model.

    A row holds the columns that the model was learned from, by name or role (`model`, `device`, `gpus`,
    `batch`, ...). A gray box also needs `predicted_seconds`; it is computed where a row has a model, a device
    and a batch and does not state it.
    """
    needs_prediction = model.schema.with_role(PREDICTED) is not None
    return model.predict([_with_prediction(job) if needs_prediction else job for job in jobs])


def _with_prediction(job: Mapping[str, object]) -> Mapping[str, object]:
    from foretrain.learning.regression.predictions import with_predictions
    from foretrain.learning.regression.table import table_of

    if PREDICTED in job:
        return job
    table, problem = with_predictions(table_of([job], "job"))
    if problem:
        raise InvalidRequest(problem)
    return table.rows()[0]
