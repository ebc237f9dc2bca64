"""A public class name stands once: a reader who meets it knows which one is meant."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "foretrain"
_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def test_each_public_class_name_stands_once() -> None:
    places = defaultdict(list)
    for file in sorted(SOURCES.rglob("*.py")):
        place = file.relative_to(SOURCES).as_posix()
        for name in _CLASS.findall(file.read_text(encoding="utf-8")):
            places[name].append(place)
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice, f"rename so that each name is of one class: {twice}"
