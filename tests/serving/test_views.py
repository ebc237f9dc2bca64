"""Answers as pages: `str()` is the text of the command, notebooks get the same figures, `repr()` a line."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from html import unescape
from html.parser import HTMLParser
from subprocess import CompletedProcess
from typing import Any

import pytest

import foretrain as ft
from foretrain.answers import Answer, Infeasible
from foretrain.prediction.answer import Prediction
from foretrain.prediction.resources.consumption import Consumption
from foretrain.serving.rendering import answer_html, answer_text
from foretrain.serving.rendering.html import document, fragment
from foretrain.serving.rendering.terminal import plain_text
from foretrain.serving.table import shown
from foretrain.serving.views import page_of
from foretrain.serving.views.blocks import (
    Break,
    Cell,
    Code,
    Column,
    Figure,
    Figures,
    Heading,
    Notes,
    Page,
    Sentence,
    Table,
    Tone,
)

Run = Callable[..., CompletedProcess[str]]
CONVERGE = "step,loss\n" + "".join(f"{10 * step},{1 + 10 / step}\n" for step in range(1, 40))
PARTS_OF_ANSWERS = {Prediction, Consumption}
"""Answers of the core that no verb returns: one is the base of `JobPrediction`, one a part of its answer."""
VOID = {"meta", "br", "wbr", "col"}


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            "predict mnist-cnn --on t4 --batch 64 --no-advice",
            lambda: ft.predict("mnist-cnn", on="t4", batch=64, advice=False),
        ),
        ("trace mnist-cnn --batch 4", lambda: ft.trace("mnist-cnn", batch=4)),
        ("rent-or-buy --price 8000 --rent 1.5", lambda: ft.rent_or_buy(price=8000, rent=1.5)),
        (
            "plan mnist-cnn --samples 60000 --epochs 10 --gpu t4 --cloud aws",
            lambda: ft.plan("mnist-cnn", samples=60_000, epochs=10, gpu="t4", cloud="aws"),
        ),
        (
            "guide mnist-cnn --on t4,t4:2 --batch 32,64",
            lambda: ft.guide("mnist-cnn", on=["t4", "t4:2"], batch=[32, 64]),
        ),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_the_same_page_in_three_renderings(run_here: Run, words: str, answer: Callable[[], Answer]) -> None:
    given = answer()
    text = run_here(*words.split()).stdout.rstrip("\n")
    assert str(given) == text
    assert "\x1b" not in text
    assert "\n" not in repr(given)
    assert repr(given).startswith(f"<{type(given).__name__}: ")
    for markup in (given._repr_html_(), document(page_of(given))):
        missing = figures(text) - figures(read(markup))
        assert not missing


def test_a_log_as_text(run_here: Run, tmp_path: Any) -> None:
    log = tmp_path / "log.csv"
    log.write_text(CONVERGE)
    answer = ft.converge(log, target="loss=1.1")
    assert str(answer) == run_here("converge", str(log), "--target", "loss=1.1").stdout.rstrip("\n")


def test_every_answer_has_a_view() -> None:
    classes = all_answers() - PARTS_OF_ANSWERS
    assert {each.__name__ for each in classes} == set(shown())
    assert len({each.__name__ for each in classes}) == len(classes), "views are found by the name of a class"


def test_an_answer_without_a_view_is_its_summary() -> None:
    @dataclass(frozen=True)
    class Small(Answer):
        size: int

        def to_dict(self) -> dict[str, Any]:
            return {"size": self.size}

        def summary(self) -> tuple[tuple[str, str], ...]:
            return (("size", str(self.size)), ("unit", "B"))

    assert answer_text(Small(3)) is None
    assert answer_html(Small(3)) is None
    assert (repr(Small(3)), str(Small(3))) == ("<Small: size 3, unit B>", "size: 3\nunit: B")


def test_infeasible_keeps_its_sentence() -> None:
    answer = Infeasible("memory", "80 GiB", "24 GiB")
    assert str(answer) == "infeasible: memory needs 80 GiB, but there is 24 GiB"
    assert repr(answer) == "<Infeasible: infeasible memory, needed 80 GiB, available 24 GiB>"


def test_a_page_of_all_blocks_by_hand() -> None:
    page = Page(
        "All",
        (
            Heading("The answer", Tone.GOOD),
            Sentence("indented", Tone.MINOR, indent=1),
            Figures([Figure("cost", "$3", "80 % between $2 and $4")]),
            Break(),
            Table(
                [Column("machine"), Column("time", right=True)],
                [("a", Cell("1 s", 1.0)), ("bb", "20 s")],
                "Title",
            ),
            Notes(["careful"], indent=1),
            Code("foretrain plan"),
        ),
    )  # fmt: skip
    assert plain_text(page) == (
        "The answer\n  indented\n  cost: $3, 80 % between $2 and $4\n\n"
        "Title\nmachine  time\na         1 s\nbb       20 s\n  Note: careful\n  foretrain plan"
    )


def test_hostile_names_stay_text() -> None:
    attack = "</td><script>alert('x')</script>\""
    column = Column(attack, role="name")
    page = Page(
        attack,
        (
            Heading(attack), Heading(attack, level=2), Sentence(attack),
            Figures([Figure(attack, attack, attack)]),
            Table([column, column], [(Cell(attack, 1.0, attack, attack, link="javascript:x"), attack)]),
            Table([column, column], [(attack, Cell(attack, 2.0, tip=attack))], attack, shade=attack),
            Notes([attack]), Code(attack),
        ),
    )  # fmt: skip
    for markup in (fragment(page), document(page, attack, attack, attack)):
        assert "<script>alert" not in markup
        assert 'href="javascript' not in markup
        assert read(markup).count("<script>alert") >= 10


def test_a_model_with_a_hostile_name() -> None:
    answer = ft.predict("mnist-cnn", on="t4", batch=64, advice=False)
    assert not isinstance(answer, Infeasible)
    trained = answer.workload
    source: Any = replace(trained.source, name="<script>alert(1)</script>")  # type: ignore[type-var]
    attacked = replace(answer, workload=replace(trained, source=source))
    assert "<script>" not in attacked._repr_html_()
    assert "&lt;script&gt;" in attacked._repr_html_()


class Seen(HTMLParser):
    """The text of HTML without styles and scripts; elements must be closed in order."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text += f"{data} "


def read(markup: str) -> str:
    """What a reader of a well-formed page sees."""
    return unescape(Seen(markup).text)


def figures(text: str) -> set[str]:
    """The numbers of a text, without bars of characters."""
    return set(re.findall(r"\d[\d,.]*\d|\d", text))


def all_answers() -> set[type[Answer]]:
    """Every class of answers of the package, whatever file it is in."""
    import foretrain

    for found in pkgutil.walk_packages(foretrain.__path__, "foretrain."):
        if "answer" in found.name or re.search(
            r"^class \w+\(.*(?:Answer|Prediction)\)", _source(found), re.MULTILINE
        ):
            importlib.import_module(found.name)
    return {each for each in _subclasses(Answer) if each.__module__.startswith("foretrain.")}


def _source(found: pkgutil.ModuleInfo) -> str:
    spec = found.module_finder.find_spec(found.name, None)
    loader = None if spec is None else spec.loader
    return getattr(loader, "get_source", lambda _: "")(found.name) or ""


def _subclasses(cls: type[Any]) -> set[type[Any]]:
    return {each for direct in cls.__subclasses__() for each in (direct, *_subclasses(direct))}
