"""How large a model to train: the run of the lowest expected loss, its neighbours, the laws, a chart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from foretrain.serving.views.blocks import (
    Block,
    Break,
    Chart,
    Column,
    Heading,
    Page,
    Sentence,
    Series,
    Table,
    Tone,
)
from foretrain.serving.views.charts import tight_axis
from foretrain.serving.views.plan import configuration_of, gpus, machines_of
from foretrain.serving.views.vega import (
    ACCENT,
    PALETTE,
    ChartLine,
    ChartQuantity,
    Spec,
    axis_over,
    figure,
    line_layers,
)
from foretrain.serving.views.wording import amount, between, notes, percent, probability, together
from foretrain.units import GIGA, format_count, format_duration, format_money

if TYPE_CHECKING:
    from foretrain.planning.size import SizeAnswer, SizedRun

_MARK = "✓"
_HEIGHT = 340
_SERVING = "serving"


def size_page(answer: SizeAnswer) -> Page:
    """The run, its loss with what moves it, the sizes compared, the laws, what it rests on."""
    return Page.of("How large a model to train", _blocks(answer))


def _blocks(answer: SizeAnswer) -> Iterator[Block]:
    run, plan = answer.run, answer.run.plan
    shape = run.shape
    limits = " and ".join(_limits(answer))
    yield Heading(
        f"{_MARK} {limits}: train {format_count(shape.parameters)} parameters on {format_count(run.tokens)} "
        f"tokens, expected loss {_loss(answer.loss.p50)}",
        Tone.GOOD,
    )
    yield Sentence(
        f"{shape.layers} layers, {shape.width:,} wide, {shape.heads} heads; "
        f"{amount(run.tokens_per_parameter)} tokens per parameter",
        indent=1,
    )
    place = f" in {plan.offer.place}" if plan.offer.place else ""
    yield Sentence(
        f"on {machines_of(plan)}{place} ({gpus(plan)}): {format_duration(plan.seconds.p50)} "
        f"({between(format_duration(plan.seconds.p10), format_duration(plan.seconds.p90))}) for "
        f"{format_money(plan.usd.p50)}, within the limits with {probability(plan.both)} probability",
        indent=1,
    )
    yield Sentence(configuration_of(plan), indent=1)
    yield from _loss_blocks(answer)
    yield Break()
    yield _sizes(answer)
    yield from _serving(answer)
    yield size_chart(answer)
    if answer.optima:
        yield Break()
        yield _laws(answer)
    yield Break()
    yield notes(answer.notes)


def _limits(answer: SizeAnswer) -> Iterator[str]:
    if answer.budget_usd is not None:
        yield format_money(answer.budget_usd)
    if answer.deadline_seconds is not None:
        yield together(format_duration(answer.deadline_seconds))


def _loss(value: float) -> str:
    return f"{value:.3f}"


def _loss_blocks(answer: SizeAnswer) -> Iterator[Block]:
    estimate = answer.forecast.estimate
    parts = " + ".join(f"{_loss(part.value)} {part.name}" for part in estimate.parts)
    yield Sentence(
        f"Loss: {_loss(answer.loss.p50)} nats per token "
        f"({between(_loss(answer.loss.p10), _loss(answer.loss.p90))}) by {answer.forecast.law}: {parts}",
        indent=1,
    )
    moves = (
        f"{name} -{_loss(each.below)} to +{_loss(each.above)}"
        for name, each in answer.forecast.sources.items()
        if each.below or each.above
    )
    yield Sentence(f"What moves it: {', '.join(moves)}", Tone.MINOR, indent=1)


def _sizes(answer: SizeAnswer) -> Table:
    law = answer.forecast.law
    columns = [
        Column(""),
        Column("parameters", right=True),
        Column("layers", right=True, expendable=6),
        Column("width", right=True, expendable=5),
        Column("tokens", right=True),
        Column("per parameter", right=True, expendable=1),
        Column("loss", right=True, tone=Tone.KEY),
        Column("more", right=True, expendable=2),
        Column("machines", least=20, expendable=3),
        Column("time", right=True, expendable=4),
        Column("cost", right=True, tone=Tone.GOOD),
    ]
    rows = [_row(answer, place, run, law) for place, run in enumerate(answer.runs)]
    title = "Sizes compared, each trained on as many tokens as the limits allow:"
    if answer.is_fixed:
        title = "The size that was given, trained on as many tokens as the limits allow:"
    return Table(columns, rows, title)


def _row(answer: SizeAnswer, place: int, run: SizedRun, law: str) -> tuple[str, ...]:
    loss, best = run.losses[law], answer.run.losses[law]
    mark = _MARK if place == answer.chosen else _SERVING if place == answer.for_serving else ""
    return (
        mark,
        format_count(run.shape.parameters),
        f"{run.shape.layers}",
        f"{run.shape.width:,}",
        format_count(run.tokens),
        amount(run.tokens_per_parameter),
        _loss(loss),
        "" if place == answer.chosen else f"{loss - best:+.3f}",
        machines_of(run.plan),
        format_duration(run.plan.seconds.p50),
        format_money(run.plan.usd.p50),
    )


def _serving(answer: SizeAnswer) -> Iterator[Block]:
    if answer.for_serving is None:
        return
    run, law = answer.runs[answer.for_serving], answer.forecast.law
    share = run.shape.parameters / answer.run.shape.parameters
    yield Sentence(
        f"{_SERVING}: {format_count(run.shape.parameters)} parameters on {format_count(run.tokens)} tokens "
        f"cost {percent(1 - share)} less to serve for {run.losses[law] - answer.run.losses[law]:+.3f} loss",
        Tone.MINOR,
        indent=1,
    )


def _laws(answer: SizeAnswer) -> Table:
    """What each law prefers among the sizes compared."""
    from foretrain.convergence.scaling_laws import laws

    rows = []
    for each in answer.optima:
        law, run = laws()[each.law], answer.runs[each.place]
        beyond = " or beyond" if each.is_at_end else ""
        loss = run.losses.get(law.name)
        rows.append(
            (
                _MARK if law.name == answer.law else "",
                law.name,
                f"{format_count(run.shape.parameters)}{beyond}",
                format_count(run.tokens),
                "" if loss is None else _loss(loss),
                law.data,
                law.title,
            )
        )
    columns = [
        Column(""),
        Column("law"),
        Column("parameters", right=True),
        Column("tokens", right=True),
        Column("loss", right=True),
        Column("fitted on", expendable=1),
        Column("source", expendable=2),
    ]
    return Table(columns, rows, "Preferred by each law:")


def size_chart(answer: SizeAnswer) -> Chart:
    """The loss against the number of parameters at this budget, a line for each law that predicts one."""
    title = "Loss at this budget"
    description = "Expected loss against the number of parameters, trained on what the limits allow, by law."
    sizes = [run.shape.parameters / GIGA for run in answer.runs]
    names = list(answer.run.losses)

    def losses(law: str) -> list[float]:
        return [run.losses[law] for run in answer.runs]

    def spec(width: int) -> Spec:
        lines = [
            ChartLine(
                law, sizes, losses(law), PALETTE[place % len(PALETTE)], has_marks=True,
                tips=[f"{run.shape.name}, {format_count(run.tokens)} tokens, {law}: {_loss(run.losses[law])}"
                      for run in answer.runs],
            )
            for place, law in enumerate(names)
        ]  # fmt: skip
        law = answer.forecast.law
        chosen = ChartLine(
            "chosen", [sizes[answer.chosen]], [answer.run.losses[law]], ACCENT, is_line=False,
            tips=[f"chosen: {answer.run.shape.name}"], low=[answer.loss.p10], high=[answer.loss.p90],
            mark={"size": 160, "shape": "diamond"},
        )  # fmt: skip
        x = axis_over(sizes, "parameters, billions", ChartQuantity.NUMBER, width, is_log=True)
        y = tight_axis([value for line in (*lines, chosen) for value in line.values], "loss, nats per token")
        content = {"width": width, "height": _HEIGHT, "layer": line_layers([*lines, chosen], x, y)}
        return figure(title, description, content)

    series = [Series(law, sizes, losses(law), is_main=law == answer.forecast.law) for law in names]
    return Chart(
        title, description, "parameters, billions", "loss, nats per token", series, is_log=True, spec=spec
    )
