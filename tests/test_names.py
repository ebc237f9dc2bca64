"""Names stand once: a public class name, so that a reader knows which is meant, and those of strategies."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

from foretrain.prediction.strategies.strategy import words

SOURCES = Path(__file__).parents[1] / "src" / "foretrain"
OWN_NAMES = ("prediction/strategies/", "workloads/training_configs/")
"""Strategies themselves, and readers of the files of frameworks, whose words these are as well."""
_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def test_each_public_class_name_stands_once() -> None:
    places = defaultdict(list)
    for file in sorted(SOURCES.rglob("*.py")):
        place = file.relative_to(SOURCES).as_posix()
        for name in _CLASS.findall(file.read_text(encoding="utf-8")):
            places[name].append(place)
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice, f"rename so that each name is of one class: {twice}"


def test_no_strategy_is_compared_by_its_name_outside_its_file() -> None:
    """A new strategy is one file: what others need to know of it is an attribute of it or of its layout."""
    compared = [
        f"{file.relative_to(SOURCES)}:{node.lineno}"
        for file in sorted(SOURCES.rglob("*.py"))
        if not file.relative_to(SOURCES).as_posix().startswith(OWN_NAMES)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Constant) and part.value in words()
    ]
    assert not compared, f"ask the strategy or its layout: {compared}"
