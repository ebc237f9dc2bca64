"""A new verb is one request, one function with its answer, one view and one small command file."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, final

import pytest
from click.testing import CliRunner

from foretrain import serving
from foretrain.answers import Answer
from foretrain.decoding import option, whole_number
from foretrain.serving import views
from foretrain.serving.cli import app as cli
from foretrain.serving.cli.frame import Command, Output
from foretrain.serving.cli.terminal import print_answer
from foretrain.serving.rendering.html import document
from foretrain.serving.requests.base import Request
from foretrain.serving.views import report_of
from foretrain.serving.views.blocks import Page, Sentence

COMMANDS = Path(serving.__path__[0]) / "cli"
NOT_COMMANDS = {"__init__", "app", "completion", "frame", "terminal"}


@dataclass(frozen=True, kw_only=True)
class DoubleRequest(Request):
    VERB = "double"

    devices: int = option(whole_number(1), "Number of devices.", required=True, positional=True)


@final
@dataclass(frozen=True)
class Doubled(Answer):
    devices: int

    def to_dict(self) -> dict[str, Any]:
        return {"devices": self.devices}

    def summary(self) -> tuple[tuple[str, str], ...]:
        return (("devices", str(self.devices)),)


def double(request: DoubleRequest) -> Doubled:
    return Doubled(2 * request.devices)


def doubled_page(answer: Doubled) -> Page:
    return Page.of("Doubled", [Sentence(f"Twice as many are {answer.devices} devices.")])


def run_double(request: DoubleRequest, output: Output) -> None:
    print_answer(double(request), output.json)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """The command line with one more verb; each line stands for what a file of its own would declare."""
    command, view = ModuleType("foretrain.serving.cli.double"), ModuleType("foretrain.serving.views.double")
    command.COMMAND = Command(DoubleRequest, Output, run_double)  # type: ignore[attr-defined]
    view.doubled_page = doubled_page  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, command.__name__, command)
    monkeypatch.setitem(sys.modules, view.__name__, view)
    monkeypatch.setitem(cli.SUMMARIES, "double", "Twice as many devices.")
    monkeypatch.setattr(views, "VIEWS", {**views.VIEWS, "Doubled": "double.doubled_page"})

    def invoke(*words: str) -> str:
        return CliRunner().invoke(cli.app, words, catch_exceptions=False).output

    yield invoke


def test_it_prints_helps_and_reports(run: Callable[..., str]) -> None:
    assert run("double", "4") == "Twice as many are 8 devices.\n"
    assert run("double", "4", "--json") == '{\n  "devices": 8\n}\n'
    assert "Number of devices." in run("double", "--help")
    assert "Twice as many devices." in run("--help")
    assert "Twice as many are 8 devices." in document(report_of(Doubled(8)))


@pytest.mark.parametrize(
    "file", sorted(each.stem for each in COMMANDS.glob("*.py") if each.stem not in NOT_COMMANDS)
)
def test_command_files_decode_call_and_print(file: str) -> None:
    """They declare no requests, and know neither the core, beyond its types, nor JSON."""
    tree = ast.parse((COMMANDS / f"{file}.py").read_text(encoding="utf-8"))
    bases = {
        getattr(base, "id", "")
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef)
        for base in each.bases
    }
    assert bases <= {"Output"}
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    assert not names & {"print_json", "print_table", "encode", "open_store"}
