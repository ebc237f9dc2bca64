"""The report of a plan: what to rent, what it is chosen from, what it consists of, what it rests on."""

from __future__ import annotations

from foretrain.planning.frontier import Frontier
from foretrain.prediction.answer import Prediction
from foretrain.serving import plan_words as words
from foretrain.serving.html.job_sections import job_section, memory_section, scaling_section, step_section
from foretrain.serving.html.markup import Markup, element, ranged
from foretrain.serving.html.page import KeyFigure, code, key_figures, notes, page, paragraph, section
from foretrain.serving.html.plan_chart import front_chart
from foretrain.serving.html.plan_sources import sources_section
from foretrain.serving.html.plan_tables import front_section, left_out_section, losers_section
from foretrain.serving.html.plan_variants import job_stream_section, two_phases_section
from foretrain.serving.wording import amount, between, probability, sentence, together
from foretrain.units import format_bytes, format_duration, format_money


def plan_report(frontier: Frontier, command: str = "", made_on: str = "") -> str:
    """The plan as one self-contained HTML page; `command` and `made_on` tell what made it, and when."""
    return page(
        title=f"What to rent to train {frontier.model}",
        kicker=" · ".join(part for part in ("foretrain plan", made_on) if part),
        opening=(_answer(frontier), _figures(frontier)),
        sections=(
            front_section(frontier, front_chart(frontier)),
            two_phases_section(frontier.two_phases),
            job_section(frontier.job),
            *_step(frontier.prediction),
            job_stream_section(frontier.job_stream),
            losers_section(frontier),
            left_out_section(frontier.excluded),
            _notes(frontier),
            sources_section(frontier),
        ),
        footer=_footer(frontier, command, made_on),
    )


def _step(prediction: Prediction | None) -> tuple[Markup, ...]:
    """What the chosen plan's step consists of, where that was predicted in full."""
    if prediction is None:
        return ()
    curve = prediction.parallelism.scaling
    return step_section(prediction), memory_section(prediction), scaling_section(curve)


def _answer(frontier: Frontier) -> Markup:
    """The answer in a sentence or two."""
    plan = frontier.plans[frontier.reported]
    region = words.where(plan)
    where = (" in ", element("span", region, class_="keep")) if region else ()
    kind = "spot" if plan.spot else "on demand"
    what = (element("strong", words.machines(plan)), f" ({words.gpus(plan)}) {kind}", *where)
    seconds, usd = plan.seconds, plan.usd
    said = (
        f": {frontier.model} trains in {together(format_duration(seconds.p50))} "
        f"({between(format_duration(seconds.p10), format_duration(seconds.p90))}) for "
        f"{format_money(usd.p50)} ({format_money(usd.p10)} to {format_money(usd.p90)}). "
        f"{words.limits(frontier, plan)}"
    )
    if frontier.meets_limits:
        return paragraph("Rent ", *what, said, class_="lead")
    return paragraph(
        "Nothing is expected to keep these limits. The nearest is ", *what, said, class_="lead missed"
    )


def _figures(frontier: Frontier) -> Markup:
    plan = frontier.plans[frontier.reported]
    figures = [
        KeyFigure("time", format_duration(plan.seconds.p50), ranged(words.between_times(plan.seconds))),
        KeyFigure("money", format_money(plan.usd.p50), ranged(words.between_money(plan.usd))),
    ]
    if frontier.deadline_seconds is not None or frontier.budget_usd is not None:
        figures.append(KeyFigure("chance", probability(plan.both), _kept(frontier)))
    if plan.kwh is not None:
        emitted = "" if plan.co2_kg is None else f"{amount(plan.co2_kg)} kg of CO2"
        figures.append(KeyFigure("energy", f"{amount(plan.kwh)} kWh", emitted))
    if frontier.prediction is not None:
        memory = frontier.prediction.memory
        room = f"of {format_bytes(memory.capacity_bytes)} on each GPU"
        figures.append(KeyFigure("memory", format_bytes(memory.bytes.p50), room))
    return key_figures(figures)


def _kept(frontier: Frontier) -> str:
    deadline, budget = frontier.deadline_seconds, frontier.budget_usd
    kept = [format_duration(deadline)] if deadline is not None else []
    kept += [format_money(budget)] if budget is not None else []
    return f"to keep {' and '.join(kept)}"


def _notes(frontier: Frontier) -> Markup:
    of_step = () if frontier.prediction is None else frontier.prediction.notes
    told = (*frontier.notes, *of_step, *frontier.job.notes)
    return section("Notes", notes([sentence(note) for note in told]))


def _footer(frontier: Frontier, command: str, made_on: str) -> tuple[str, ...]:
    made = f"Made on {made_on}" if made_on else "Made"
    by = (f"{made} by ", code(command)) if command else (f"{made} by foretrain",)
    compared = f", which compared {frontier.considered:,} combinations of machines, strategy and batch size."
    return (paragraph(*by, compared),)
