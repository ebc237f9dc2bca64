"""The documentation is up to date: its commands exist, its outputs are what the commands print now."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PARTS = 4
"""Parts that run side by side, each a share of the pages."""
RENDERER = ROOT / "scripts" / "render_docs.py"


def load_renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render_docs", RENDERER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["render_docs"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


render_docs = load_renderer()


def shown_commands(text: str) -> Iterator[list[str]]:
    """The words after `foretrain` of each command in the fenced blocks of a page."""
    for block in re.findall(r"^ *```(?:sh|console)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^ *(?:\$ )?foretrain (.*)$", block.replace("\\\n", " "), re.MULTILINE):
            yield shlex.split(re.split(r"[|;]", line)[0], comments=True)


@cache
def known_commands() -> dict[str, Any]:
    return {command.name: command for command in render_docs.commands()}


def problem_with(words: list[str]) -> str | None:
    """Why the command line would not understand these words, or None."""
    if words[0].startswith("-"):
        return None if words[0] in {"--help", "--version", "--install-completion"} else f"option {words[0]}"
    words = words[: words.index("--")] if "--" in words else words  # what follows is another command
    known = known_commands()
    of_family = " ".join(words[:2])  # `runs list`
    command = of_family if of_family in known else words[0]
    if command not in known:
        return f"command {command}"
    names = (parameter.name for parameter in known[command].parameters)
    flags = {flag for name in names for flag in re.split(r", | / ", name)}
    unknown = [word for word in words[1:] if word.startswith("--") and word not in {*flags, "--help"}]
    return f"options {unknown} of {command}" if unknown else None


def check(root: Path, *pages: Path) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, str(RENDERER), "--check", "--root", str(root), *map(str, pages)]
    return subprocess.run(arguments, capture_output=True, text=True, check=False)


def test_the_readme_starts_with_the_two_commands() -> None:
    first_block = re.search(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert first_block is not None
    assert first_block[1].splitlines() == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in ("demo", "test"))


def test_commands_are_found_in_a_page() -> None:
    page = "```console\n$ foretrain devices h100 | head -3\nh100\n```\n"
    page += "```sh\nforetrain offers \\\n  --spot # now\n```\n"
    assert list(shown_commands(page)) == [["devices", "h100"], ["offers", "--spot"]]


@pytest.mark.parametrize(
    "words",
    [["divine"], ["devices", "--nonsense"], ["--nonsense"], ["runs", "divine"], ["runs", "list", "--x"]],
)
def test_a_command_that_does_not_exist_is_noticed(words: list[str]) -> None:
    assert problem_with(words)


@pytest.mark.parametrize("page", list(render_docs.pages(ROOT)), ids=lambda page: page.name)
def test_every_command_shown_exists(page: Path) -> None:
    problems = [problem for words in shown_commands(page.read_text()) if (problem := problem_with(words))]
    assert not problems


@pytest.mark.parametrize("part", range(PARTS))
def test_outputs_and_tables_are_up_to_date(part: int) -> None:
    checked = check(ROOT, *list(render_docs.pages(ROOT))[part::PARTS])
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("page", "true", "false"),
    [
        ("docs/rent-or-buy.md", "3,733 h of use", "3,734 h of use"),
        ("docs/nomenclature.md", "| `tdp_watts` | W |", "| `tdp_watts` | kW |"),
    ],
)
def test_a_figure_that_is_not_true_is_noticed(tmp_path: Path, page: str, true: str, false: str) -> None:
    (tmp_path / page).parent.mkdir()
    text = (ROOT / page).read_text()
    assert true in text
    (tmp_path / page).write_text(text.replace(true, false))
    checked = check(tmp_path)
    assert checked.returncode == 1
    assert checked.stdout == f"{page}: out of date, run scripts/render_docs.py\n"


def test_the_demo_shows_only_commands_that_exist() -> None:
    script = (ROOT / "scripts" / "demo.sh").read_text().replace("\\\n", " ")
    shown = [shlex.split(line) for line in re.findall(r"^show foretrain (.*)$", script, re.MULTILINE)]
    assert {words[0] for words in shown} >= {"devices", "offers", "rent-or-buy", "explain"}
    assert [problem_with(words) for words in shown if problem_with(words)] == []


def test_every_dependency_is_argued_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    record = (ROOT / "docs/adr/0002-dependencies.md").read_text("utf-8")
    core, extras = record.split("## Decision: extras")
    named = set(re.findall(r"[\w-]+", core))
    assert [each for each in project["dependencies"] if re.split("[<>=[]", each)[0] not in named] == []
    assert [extra for extra in project["optional-dependencies"] if f"`{extra}`" not in extras] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs/adr"
    index = (folder / "index.md").read_text("utf-8")
    assert [file.name for file in sorted(folder.glob("0*.md")) if f"({file.name})" not in index] == []


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_files_that_are_named_exist(page: str) -> None:
    folders = [each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(".")]
    paths = {f"/{each.relative_to(ROOT).as_posix()}" for folder in folders for each in folder.rglob("*")}
    paths |= {f"/{each.name}" for each in ROOT.iterdir()}
    prose = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"`([\w/-]+(?:\.(?:py|toml|md|yaml|sh)|/))`", prose)) - {"utils.py"}
    missing = [name for name in named if not any(path.endswith(f"/{name.rstrip('/')}") for path in paths)]
    assert sorted(missing) == []
