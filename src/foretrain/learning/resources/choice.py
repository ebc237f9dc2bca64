"""The consumption of a step by the timeline or an Inspector: whichever validated better for the setting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrain.answers import Infeasible
from foretrain.errors import ForetrainError, InvalidRequest
from foretrain.learning.resources.artefact import SHIPPED, Inspector, load, own_file
from foretrain.learning.resources.inputs import table_of
from foretrain.learning.resources.samples import METRICS, RESOURCES, WorkerScene, scene_of
from foretrain.prediction.predict import pace_of
from foretrain.prediction.resources.bursts import Pattern
from foretrain.prediction.resources.consumption import (
    INSPECTOR,
    TIMELINE,
    Consumption,
    ResourceBursts,
    ResourceFigure,
    timeline_consumption,
)
from foretrain.prediction.scenario import Evaluation, Scenario
from foretrain.store.runs import Floats

AUTO = "auto"
METHODS = (AUTO, TIMELINE, INSPECTOR)


def consumption(
    scenario: Scenario, method: str = AUTO, sample_seconds: float | None = None
) -> Consumption | Infeasible:
    """What a worker uses in the course of a step."""
    if method not in METHODS:
        raise InvalidRequest(f"method {method!r} is not one of {', '.join(METHODS)}")
    pace = pace_of(scenario)
    if isinstance(pace, Infeasible):
        return pace
    if method == TIMELINE:
        return timeline_consumption(scenario, pace, "as asked", sample_seconds)
    if method == AUTO and not pace.context.environment.device.is_cpu:
        reason = "Inspectors are trained on CPU workers; no measured GPU runs are available"
        return timeline_consumption(scenario, pace, reason, sample_seconds)
    scene = _scene(pace)
    if isinstance(scene, str):
        if method == INSPECTOR:
            raise InvalidRequest(f"method {INSPECTOR}: {scene}; use method {TIMELINE}")
        return timeline_consumption(scenario, pace, scene, sample_seconds)
    inspector = load(own_file() if own_file().exists() else SHIPPED)
    doubt, reason = _judge_inspector(inspector, scene)
    if method == AUTO and doubt:
        return timeline_consumption(scenario, pace, doubt, sample_seconds)
    timeline = timeline_consumption(scenario, pace, reason if method == AUTO else "as asked", sample_seconds)
    return correct_timeline(timeline, inspector, scene)


def _scene(pace: Evaluation) -> WorkerScene | str:
    """The step as an Inspector sees it, or why it cannot."""
    try:
        return scene_of(pace)
    except ForetrainError as error:
        return str(error)


def _judge_inspector(inspector: Inspector, scene: WorkerScene) -> tuple[str, str]:
    """Why the Inspector is not to be used, empty if it is; and why it is."""
    errors = inspector.by_strategy.get(scene.strategy)
    if errors is None:
        return f"the Inspector has seen no runs with strategy {scene.strategy}", ""
    if scene.step.workers > inspector.most_workers:
        return f"the Inspector has seen at most {inspector.most_workers} workers", ""
    compared = (
        f"mean error on models left out, {scene.strategy}: Inspector {errors.inspector:.0%}, timeline "
        f"{errors.timeline:.0%}, {errors.runs} runs"
    )
    return (compared, "") if errors.inspector >= errors.timeline else ("", compared)


def correct_timeline(timeline: Consumption, inspector: Inspector, scene: WorkerScene) -> Consumption:
    """The consumption as an Inspector corrects the timeline; what it does not predict stays as it is."""
    from foretrain.learning.resources.training import predict_targets

    table = table_of([scene], inspector.options, inspector.constants, inspector.interval_seconds)
    figures = predict_targets(inspector.members, table)[0]
    cycle = scene.cycle(inspector.constants)
    has_network = scene.step.workers > 1
    resources = []
    for place, before in enumerate(timeline.resources):
        if place >= 2 and not has_network:
            resources.append(before)
            continue
        says = int(table.alternates[0, place])
        alternates = inspector.alternating[says, place] >= 0.5
        resources.append(_correct_bursts(before, place, figures, inspector, bool(alternates)))
    note = f"trained on {inspector.provenance.get('runs')} runs of CPU workers"
    return replace(
        timeline,
        method=INSPECTOR,
        resources=tuple(resources),
        cycle=cycle,
        cycle_seconds=cycle.period_seconds,
        notes=(*timeline.notes, note),
    )


def _correct_bursts(
    before: ResourceBursts, place: int, figures: Floats, inspector: Inspector, alternates: bool
) -> ResourceBursts:
    assert before.resource is RESOURCES[place], "answers list the resources in the order of the targets"
    start = place * len(METRICS)
    amount, burst, idle = (
        ResourceFigure(
            float(figures[at]),
            float(figures[at] * inspector.low[at]),
            float(figures[at] * inspector.high[at]),
        )
        for at in range(start, start + len(METRICS))
    )
    if not alternates:
        return replace(
            before,
            pattern=Pattern.BUSY,
            burst_amount=amount,
            burst_duration=ResourceFigure(0.0),
            idle_duration=ResourceFigure(0.0),
            idle_amount=0.0,
        )
    kept = before.idle_amount if before.pattern is Pattern.ALTERNATING else 0.0
    return replace(
        before,
        pattern=Pattern.ALTERNATING,
        burst_amount=amount,
        burst_duration=burst,
        idle_duration=idle,
        idle_amount=float(np.minimum(kept, amount.p50)),
    )
