"""The registry of strategies, and the layout of a strategy text.

A single word selects a strategy that uses all devices (`ddp`, `fsdp`, `ps-sync`). A list gives degrees and
options, each read by the strategy that declares the key: `tp=4,pp=2,dp=8,zero=1`. `auto` runs the search.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from foretrain.errors import InvalidRequest, nearest
from foretrain.prediction.strategies._base import Shards, Strategy
from foretrain.prediction.strategies.layout import Layout
from foretrain.prediction.strategies.program import Program, compiled
from foretrain.registry import Registry, discovered
from foretrain.workloads.fusion import ExecutedGraph

AUTO = "auto"
_known: list[Strategy] = []


def strategies() -> Registry[Strategy]:
    """All strategies, in the order they read keys and divide programs."""
    if not _known:
        _known.extend(discovered(__name__, Strategy))
    return _registry(tuple(_known))


@cache
def _registry(known: tuple[Strategy, ...]) -> Registry[Strategy]:
    ordered = sorted(known, key=lambda each: (each.order, each.name))
    return Registry("strategy", ordered, name=lambda each: each.name, aliases=_other_words)


def _other_words(strategy: Strategy) -> tuple[str, ...]:
    """Words besides its name; no two strategies may share one."""
    return tuple(word for word in strategy.words if word != strategy.name)


@contextmanager
def registered(strategy: Strategy) -> Iterator[None]:
    """A context in which one more strategy is registered."""
    strategies()
    _known.append(strategy)
    try:
        strategies()  # rejects a duplicate name
        yield
    finally:
        _known.remove(strategy)


def replication(layout: Layout) -> Strategy:
    """The strategy that defines the exchanges between replicas of a layout."""
    return strategies()[layout.replication]


def shards_state(layout: Layout) -> bool:
    """Whether replicas share parameters, gradients or optimizer state."""
    return replication(layout).shards(layout) != Shards()


def active_strategies(layout: Layout) -> tuple[Strategy, ...]:
    """The strategies that apply to a layout: those that divide the model, and that of its replicas."""
    return tuple(each for each in strategies().values() if not each.words or each.name == layout.replication)


def forms() -> str:
    """The syntax of strategies, for help texts and errors."""
    single = [each.form for each in strategies().values() if each.words]
    listed = [each.form for each in strategies().values() if not each.words]
    return f"{', '.join(single)}, degrees such as {','.join(listed[:3])}, or {AUTO}"


def words() -> tuple[str, ...]:
    """All single words that select a strategy."""
    return (*(word for each in strategies().values() for word in each.words), AUTO)


def plan_words() -> tuple[str, ...]:
    """The strategies that `plan` compares, data parallelism first."""
    return tuple(word for each in strategies().values() for word in each.plan_words)


def strategy_of(text: str) -> Strategy:
    """The strategy of a text; for a list of degrees, that of its replicas."""
    for each in strategies().values():
        if each.claims(text):
            return each
    if "=" not in text:
        raise InvalidRequest(_unknown(text))
    given = _given(text)
    return strategies()["zero" if given.get("zero", "0") != "0" else "ddp"]


def layout_of(text: str, devices: int, devices_per_node: int) -> Layout:
    """The layout of a strategy text on a number of devices."""
    for each in strategies().values():
        if each.claims(text):
            return each.parse(text, devices, devices_per_node)
    if "=" not in text:
        raise InvalidRequest(_unknown(text))
    given, layout = _given(text), Layout(text, data=devices)
    for each in strategies().values():
        layout = each.read(given, layout)
    return layout


def divided(step: ExecutedGraph, layout: Layout) -> Program:
    """The program of one device with divided layers, compiled if the workload is.

    Fused kernels hide the dimensions they work on, so the graph is divided first and fused afterwards.
    """
    whole = program = Program(step.source)
    for each in strategies().values():
        program = each.divide(program, layout)
    return Program(step.graph) if program is whole else compiled(program)


def _unknown(text: str) -> str:
    near = nearest(text, words())
    suggestion = f"; did you mean {near[0]}?" if near else ""
    return f"strategy {text!r} is not one of {forms()}{suggestion}"


def _given(text: str) -> dict[str, str]:
    known = tuple(key for each in strategies().values() for key in each.keys)
    given: dict[str, str] = {}
    for item in text.split(","):
        name, _, value = item.strip().partition("=")
        if name not in known:
            raise InvalidRequest(f"strategy {text!r}: {name!r} is not one of {', '.join(known)}")
        if name in given:
            raise InvalidRequest(f"strategy {text!r} gives {name} twice; give it once")
        given[name] = value
    return given
