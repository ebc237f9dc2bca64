"""What a plan rests on: price lists with their dates, billing terms, what predicted the step, energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from foretrain.facts.offers import Offer
from foretrain.facts.sheets import Source, sources
from foretrain.planning.frontier import Frontier
from foretrain.serving.html.markup import Markup, join
from foretrain.serving.html.page import definitions, link, section
from foretrain.serving.html.tables import Column, table
from foretrain.serving.wording import SPACE


def sources_section(frontier: Frontier) -> Markup:
    """Prices by provider, then everything else by what it says."""
    offers = [plan.offer for plan in frontier.plans]
    columns = [
        Column("prices of (plans)", class_="title"), Column("as of", class_="keep"), Column("source"),
        Column("read on", class_="keep"),
    ]  # fmt: skip
    return section(
        "Sources", table(columns, list(_prices(offers)), class_="cards"), definitions(list(_others(frontier)))
    )


def _prices(offers: list[Offer]) -> Iterator[tuple[str, ...]]:
    counts: dict[tuple[str, str], Counter[str]] = {}
    for offer in offers:
        counts.setdefault((offer.source, offer.as_of), Counter())[offer.provider] += 1
    for (source, as_of), count in sorted(counts.items()):
        known = sources().find(source)
        read_on = "" if known is None else known.retrieved
        by = ", ".join(f"{provider}{SPACE}({plans:,})" for provider, plans in sorted(count.items()))
        yield by, as_of, _titled(source, known), read_on


def _others(frontier: Frontier) -> Iterator[tuple[str, str]]:
    prediction, job = frontier.prediction, frontier.job
    if prediction is not None:
        of_memory = prediction.memory.source
        yield "time of a step", _listed(tuple(each for each in prediction.sources if each != of_memory))
        yield "memory", _cited(of_memory)
    yield "number of steps", job.steps_source
    if job.price is not None:
        terms = job.price.terms
        yield "price", job.price.source
        if terms.source or terms.note:
            yield "billing", join((_cited(terms.source), f" ({terms.note})" if terms.note else ""))
    if job.energy is not None:
        yield "energy and CO2", _listed(job.energy.sources)


def _listed(names: tuple[str, ...]) -> Markup:
    """Sources after each other, those known by id with their title."""
    return join(part for number, name in enumerate(names) for part in ("; " if number else "", _cited(name)))


def _cited(name: str) -> Markup:
    return _titled(name, sources().find(name))


def _titled(name: str, known: Source | None) -> Markup:
    return join((name,)) if known is None else link(known.title, known.locator)
