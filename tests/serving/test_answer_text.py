"""`str()` of an answer is the text of its command, `repr()` is one line."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from subprocess import CompletedProcess
from typing import Any

import pytest

import foretrain as ft
from foretrain.answers import Answer, Infeasible
from foretrain.serving.answer_text import _SHOWN_BY, answer_text

Run = Callable[..., CompletedProcess[str]]
CONVERGE = "step,loss\n" + "".join(f"{10 * step},{1 + 10 / step}\n" for step in range(1, 40))


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
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_the_text_is_that_of_the_command(run_here: Run, words: str, answer: Callable[[], Answer]) -> None:
    given = answer()
    assert str(given) == run_here(*words.split()).stdout.rstrip("\n")
    assert "\n" not in repr(given)
    assert repr(given).startswith(f"<{type(given).__name__}: ")


def test_a_log_as_text(run_here: Run, tmp_path: Any) -> None:
    log = tmp_path / "log.csv"
    log.write_text(CONVERGE)
    answer = ft.converge(log, target="loss=1.1")
    assert str(answer) == run_here("converge", str(log), "--target", "loss=1.1").stdout.rstrip("\n")


@pytest.mark.parametrize("command", sorted(set(_SHOWN_BY.values())))
def test_every_command_can_show_its_answer(command: str) -> None:
    assert callable(importlib.import_module(f"foretrain.serving.cli.{command}").show)


def test_every_answer_of_a_public_verb_has_a_text() -> None:
    classes = {each.__name__ for each in _subclasses(Answer)}
    assert set(_SHOWN_BY) <= classes


def test_an_answer_without_a_command_is_its_summary() -> None:
    @dataclass(frozen=True)
    class Small(Answer):
        size: int

        def to_dict(self) -> dict[str, Any]:
            return {"size": self.size}

        def summary(self) -> tuple[tuple[str, str], ...]:
            return (("size", str(self.size)), ("unit", "B"))

    assert answer_text(Small(3)) is None
    assert (repr(Small(3)), str(Small(3))) == ("<Small: size 3, unit B>", "size: 3\nunit: B")


def test_infeasible_keeps_its_sentence() -> None:
    answer = Infeasible("memory", "80 GiB", "24 GiB")
    assert str(answer) == "infeasible: memory needs 80 GiB, but there is 24 GiB"
    assert repr(answer) == "<Infeasible: infeasible memory, needed 80 GiB, available 24 GiB>"


def _subclasses(cls: type[Any]) -> set[type[Any]]:
    for name in (
        "jobs.predict",
        "workloads.trace",
        "planning.plan",
        "planning.guide.guide",
        "planning.rent_or_buy",
    ):
        importlib.import_module(f"foretrain.{name}")
    for name in (
        "convergence.forecast",
        "learning.scaling.answer",
        "learning.regression.learn",
        "backends.answer",
    ):
        importlib.import_module(f"foretrain.{name}")
    for name in ("what_if", "pair_answer"):
        importlib.import_module(f"foretrain.prediction.resources.{name}")
    for name in ("forecast", "accounting", "comparison"):
        importlib.import_module(f"foretrain.scheduling.{name}")
    return {each for direct in cls.__subclasses__() for each in (direct, *_subclasses(direct))}
