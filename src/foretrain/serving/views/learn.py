"""What was learned from timings, profiles, runs and logs: models with their errors, and forecasts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import Block, Break, Column, Heading, Page, Sentence, Table
from foretrain.serving.views.charts import fan_chart
from foretrain.serving.views.wording import as_flags, notes
from foretrain.units import format_duration

if TYPE_CHECKING:
    from foretrain.convergence.forecast import Convergence
    from foretrain.estimates import Quantiles
    from foretrain.learning.regression.layers import LayersAnswer
    from foretrain.learning.regression.learn import LearnAnswer
    from foretrain.learning.scaling.answer import ScalingAnswer
    from foretrain.serving.verbs.learning import ResourcesLearned

_WORST = 3
_LONGEST_FORMULA = 300


def learn_page(answer: LearnAnswer) -> Page:
    """A model of a user's timings: how each technique did on rows left out, and the best."""
    return Page.of(f"{answer.target} from {', '.join(answer.features)}", _learn(answer))


def layers_page(answer: LayersAnswer) -> Page:
    """Lines of layers, and what they predict."""
    return Page.of(f"Layers on {answer.device}", _layers(answer))


def scaling_page(answer: ScalingAnswer) -> Page:
    """The step times of all configurations from a few timed ones."""
    return Page.of(f"Form {answer.model.form}", _scaling(answer))


def converge_page(answer: Convergence) -> Page:
    """When a training log reaches its target."""
    return Page.of(f"When {answer.target} is reached", _converge(answer))


def _learn(answer: LearnAnswer) -> Iterator[Block]:
    rows = f"{answer.timings} rows" if answer.timings == answer.configurations else (
        f"{answer.timings} rows of {answer.configurations} configurations")  # fmt: skip
    yield Heading(f"{answer.target} from {', '.join(answer.features)} ({rows})")
    for split in answer.splits:
        yield Sentence(f"Left out, {split}: {answer.left_out[split]}")
    yield Break()
    columns = [Column("technique"), Column("training", right=True)]
    columns += [Column(split, right=True) for split in answer.splits]
    columns += [Column("median", right=True, expendable=2), Column("p90", right=True, expendable=2)]
    columns.append(Column("parameters", expendable=1))
    first = answer.splits[0]
    yield Table(
        columns,
        [
            (
                ranked.technique,
                _percent(ranked.errors[first].selection),
                *(_percent(ranked.errors[split].mean) for split in answer.splits),
                _percent(ranked.errors[first].median),
                _percent(ranked.errors[first].p90),
                ", ".join(f"{name} {_short(value)}" for name, value in ranked.parameters.items()),
            )
            for ranked in answer.ranking
        ],
        title="Mean error on the rows left out, ranked by the error inside the training rows",
    )
    yield Break()
    model = answer.model
    yield Sentence(
        f"Chosen: {answer.best.technique} ({answer.best.about}); 80 % interval {model.p10:.2f} to "
        f"{model.p90:.2f} of the prediction"
    )
    if model.formula:
        cut = model.formula[:_LONGEST_FORMULA]
        yield Sentence(cut + (" ..." if len(model.formula) > len(cut) else ""))
    yield from _worst(answer)
    skipped = [f"{name} takes no part: it needs {reason}" for name, reason in answer.skipped.items()]
    yield notes((*skipped, *answer.notes))


def _worst(answer: LearnAnswer) -> Iterator[Block]:
    worst = sorted(answer.held_out, key=lambda row: -abs(row.predicted / row.measured - 1))[:_WORST]
    for row in worst:
        described = ", ".join(f"{name} {_short(value)}" for name, value in row.row.items())
        yield Sentence(
            f"Largest error: {described}: measured {row.measured:.4g}, predicted {row.predicted:.4g} "
            f"({row.predicted / row.measured - 1:+.0%})"
        )


def _percent(value: float) -> str:
    return f"{value:.1%}" if value < 10 else "> 1000%"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _layers(answer: LayersAnswer) -> Iterator[Block]:
    yield Heading(
        f"t = b0 + b1 · c for each type of layer on {answer.device}, from {', '.join(answer.fitted)}"
    )
    yield Table(
        [Column("layer"), Column("layers", right=True), Column("b0", right=True),
         Column(f"b1 per {answer.unit}", right=True)],
        [
            (name, str(line.layers), format_duration(line.start_seconds), f"{line.slope * answer.scale:.3g}")
            for name, line in answer.lines.items()
        ],
    )  # fmt: skip
    yield Break()
    yield Table(
        [Column("model"), Column("batch", right=True), Column("measured", right=True),
         Column("predicted", right=True), Column("error", right=True), Column("fitted to")],
        [
            (row.model, str(row.batch), format_duration(row.measured_seconds),
             format_duration(row.predicted_seconds), f"{row.error:+.1%}",
             "this model" if row.is_fitted else "others")
            for row in answer.predictions
        ],
    )  # fmt: skip


def _scaling(answer: ScalingAnswer) -> Iterator[Block]:
    model = answer.model
    yield Heading(
        f"Form {model.form}, fitted to {model.timings} timing{'s' if model.timings > 1 else ''}: "
        f"{model.mean_residual:.1%} off on them"
    )
    yield Sentence(f"Known beforehand: {model.prior}")
    yield Break()
    yield Table(
        [
            Column("placement", least=9),
            *(Column(title, right=True) for title in ("GPUs", "batch", "step", "p10", "p90")),
            Column("samples/s", right=True, expendable=2),
            Column("timed", right=True, expendable=1),
        ],
        [
            (
                row.placement,
                str(row.devices),
                str(row.batch),
                format_duration(row.step_seconds.p50),
                format_duration(row.step_seconds.p10),
                format_duration(row.step_seconds.p90),
                f"{row.samples_per_second:,.0f}",
                "" if row.timed_seconds is None else format_duration(row.timed_seconds),
            )
            for row in answer.predictions
        ],
    )
    if answer.comparison:
        yield Break()
        yield from _forms(answer)
    if answer.time_next:
        yield Break()
        yield from _next(answer)
    yield notes(answer.notes)


def _forms(answer: ScalingAnswer) -> Iterator[Block]:
    yield Table(
        [
            Column("form"),
            Column("parameters", right=True),
            Column("mean", right=True),
            Column("worst", right=True),
        ],
        [
            (row.form, str(row.parameters), f"{row.mean_error:.1%}", f"{row.largest_error:.1%}")
            for row in sorted(answer.comparison, key=lambda row: row.mean_error)
        ],
        title="Errors on timings left out",
    )


def _next(answer: ScalingAnswer) -> Iterator[Block]:
    yield Table(
        [Column("placement"), Column("batch", right=True), Column("intervals narrower by", right=True)],
        [(row.placement, str(row.batch), f"{row.narrower:.0%}") for row in answer.time_next],
        title="Worth timing next",
    )


def _converge(answer: Convergence) -> Iterator[Block]:
    yield Heading(answer.verdict)
    yield Sentence(f"Log:    {answer.seen_points} points to {answer.unit} {answer.seen_steps:,.6g}")
    yield Sentence(f"Method: {answer.method}")
    yield Break()
    beyond = f"after {answer.unit} {answer.final_step:,.0f}"
    steps = (_step(value, beyond) for value in _levels(answer.steps))
    rows = [(f"{answer.unit}s to {answer.target}", *steps)]
    if answer.epochs is not None and answer.unit != "epoch":
        epochs = (_step(value, beyond) for value in _levels(answer.epochs))
        rows.append((f"epochs to {answer.target}", *epochs))
    ending = f"{answer.target.metric} at {answer.unit} {answer.final_step:,.0f}"
    rows.append((ending, *(f"{value:.4g}" for value in _levels(answer.final_value))))
    yield Table([Column("what"), *(Column(level, right=True) for level in ("p10", "p50", "p90"))], rows)
    yield Break()
    if answer.drivers:
        yield Sentence("What drives the uncertainty:")
        for driver in answer.drivers:
            yield Sentence(f"- {as_flags(driver)}", indent=1)
    if answer.neighbours:
        listed = ", ".join(f"{name} ({share:.0%})" for name, share in answer.neighbours.items())
        yield Sentence(f"Nearest earlier runs: {listed}")
    yield notes(answer.notes)
    yield fan_chart(answer)


def _levels(quantiles: Quantiles) -> tuple[float, float, float]:
    return quantiles.p10, quantiles.p50, quantiles.p90


def _step(value: float, beyond: str) -> str:
    if not math.isfinite(value):
        return beyond
    return f"{value:,.5g}" if value < 100 else f"{value:,.0f}"


def resources_learned_page(answer: ResourcesLearned) -> Page:
    """The accuracy of an Inspector on models left out."""
    return Page.of("Inspector", _resources_learned(answer))


def _resources_learned(answer: ResourcesLearned) -> Iterator[Block]:
    from foretrain.learning.resources.samples import RESOURCES

    learned, left_out = answer.learned, answer.learned.left_out
    yield Heading(f"{learned.samples} runs of {len(learned.models)} models")
    methods = (
        ("Inspector", left_out.inspector),
        ("timeline, constants fitted", left_out.timeline),
        ("mean of the other models", left_out.mean),
    )
    yield Table(
        [
            Column("mean error on models left out"),
            *(Column(each.value, right=True) for each in RESOURCES),
        ],
        [
            (name, *(f"{left_out.error(predicted, place):.1%}" for place in range(len(RESOURCES))))
            for name, predicted in methods
        ],
    )
    yield Break()
    titles = ("runs", "Inspector", "timeline")
    yield Table(
        [Column("strategy"), *(Column(title, right=True) for title in titles)],
        [
            (name, str(each.runs), f"{each.inspector:.1%}", f"{each.timeline:.1%}")
            for name, each in learned.inspector.by_strategy.items()
        ],
    )
    yield from (Sentence(f"{count} not used: {reason}") for reason, count in answer.unused.items())
    yield Sentence(f"Written: {answer.files[0]} and {answer.files[1].name}")
