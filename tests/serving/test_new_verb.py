"""A new verb is a request, a function with its answer, a view, and a row of the table: nothing else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

import pytest
from click.testing import CliRunner

import foretrain as ft
from foretrain.answers import Answer
from foretrain.decoding import option, whole_number
from foretrain.serving import table
from foretrain.serving.cli.app import CommandGroup
from foretrain.serving.rendering.html import document
from foretrain.serving.requests import Request
from foretrain.serving.table import VERBS, Shown, VerbEntry
from foretrain.serving.views import report_of
from foretrain.serving.views.blocks import Page, Sentence


@dataclass(frozen=True, kw_only=True)
class DoubleRequest(Request):
    EXAMPLES = ("foretrain double 4",)

    devices: int = option(whole_number(1), "Number of devices.", required=True, positional=True)
    times: int = option(whole_number(1), "How often to double.", default=1)


@final
@dataclass(frozen=True)
class Doubled(Answer):
    devices: int

    def to_dict(self) -> dict[str, Any]:
        return {"devices": self.devices}

    def summary(self) -> tuple[tuple[str, str], ...]:
        return (("devices", str(self.devices)),)


def double(request: DoubleRequest) -> Doubled:
    """Twice as many devices."""
    return Doubled(2**request.times * request.devices)


def doubled_page(answer: Doubled) -> Page:
    return Page.of("Doubled", [Sentence(f"Twice as many are {answer.devices} devices.")])


ROW = VerbEntry(
    "double", "doubling", "DoubleRequest", "Double the devices.",
    {"serving.verbs.doubling.Doubled": Shown("doubling.doubled_page")},
)  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The command line with one more verb; each module stands for a file that declares one thing."""
    files: dict[str, list[Any]] = {
        "requests": [DoubleRequest],
        "verbs": [double, Doubled],
        "views": [doubled_page],
    }
    for folder, names in files.items():
        module = ModuleType(f"foretrain.serving.{folder}.doubling")
        vars(module).update({each.__name__: each for each in names})
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(VERBS, "double", ROW)
    app = CommandGroup(table.first_words(), name="foretrain")

    def invoke(*words: str) -> str:
        return CliRunner().invoke(app, words, catch_exceptions=False).output

    return invoke


def test_it_is_a_command_with_help_and_a_report(run: Callable[..., str]) -> None:
    assert run("double", "4") == "Twice as many are 8 devices.\n"
    assert run("double", "4", "--times", "2", "--json") == '{\n  "devices": 16\n}\n'
    text = run("double", "--help")
    assert "Number of devices." in text and "foretrain double 4" in text and "--times" in text
    assert "Double the devices." in run("--help")
    assert "Twice as many are 8 devices." in document(report_of(Doubled(8)))


def test_it_is_a_verb_of_python(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("double", "Doubled", "DoubleRequest"):  # not left behind as names of the package
        monkeypatch.setitem(vars(ft), name, ft.__getattr__(name))
    verb: Any = vars(ft)["double"]
    assert verb(4) == verb(devices=4) == verb(DoubleRequest(devices=4)) == Doubled(8)
    assert verb(4, times=2).devices == 16
    assert str(verb(4)) == run("double", "4").rstrip("\n")
    assert list(inspect.signature(verb).parameters) == ["devices", "times"]
    assert (verb.__doc__ or "").startswith("Twice as many devices.\n")
    assert vars(ft)["DoubleRequest"] is DoubleRequest and vars(ft)["Doubled"] is Doubled
    with pytest.raises(ft.InvalidRequest, match="no field 'time'; did you mean times"):
        verb(4, time=3)
    with pytest.raises(ft.InvalidRequest, match="double does not read `batch`"):
        verb(4, batch=3)


@pytest.mark.parametrize("verb", VERBS.values(), ids=lambda verb: verb.name)
def test_a_row_names_things_that_exist(verb: VerbEntry) -> None:
    assert issubclass(verb.request_class, Request)
    (request, *_) = inspect.signature(verb.function).parameters.values()
    assert request.annotation == verb.request
    for path, how in verb.answers.items():
        assert issubclass(table.load(f"foretrain.{path}"), Answer)
        for view in filter(None, how):
            assert callable(table.load(f"foretrain.serving.views.{view}"))
    assert verb.summary.endswith(".")


def test_answers_are_those_that_functions_return() -> None:
    returned = {
        name for verb in VERBS.values() for name in verb.function.__annotations__["return"].split(" | ")
    }
    assert returned == set(table.shown())
