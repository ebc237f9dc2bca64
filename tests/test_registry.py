"""The registry: names and aliases lead to items, duplicates are refused, near names suggested."""

from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrain.errors import UnknownName
from foretrain.registry import DuplicateName, Registry, discover, normalise

FRUIT = {"apple": ["Malus domestica"], "pear": ["Pyrus", "poire"]}


def fruit_registry() -> Registry[str]:
    return Registry("fruit", FRUIT, name=str, aliases=lambda name: FRUIT[name], hint="List them: fruit")


@pytest.mark.parametrize("spelling", ["apple", "APPLE", " apple ", "malus_domestica", "Malus-Domestica"])
def test_names_and_aliases_find_the_item(spelling: str) -> None:
    assert fruit_registry()[spelling] == "apple"
    assert spelling in fruit_registry()


def test_iterating_yields_primary_names_only() -> None:
    assert list(fruit_registry()) == ["apple", "pear"]
    assert len(fruit_registry()) == 2


def test_unknown_names_are_answered_with_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"no fruit 'aple'; did you mean apple.* List them: fruit"):
        fruit_registry()["aple"]
    assert "aple" not in fruit_registry()
    assert fruit_registry().find("aple") is None
    assert fruit_registry().find("Apple") == "apple"
    anything: object = 3
    assert anything not in fruit_registry()


@pytest.mark.parametrize("names", [["a b", "A-B"], ["x", "X"]])
def test_two_items_cannot_share_a_name(names: list[str]) -> None:
    with pytest.raises(DuplicateName, match="already names"):
        Registry("letter", names, name=str)


@given(st.text())
def test_normalising_twice_changes_nothing(name: str) -> None:
    assert normalise(normalise(name)) == normalise(name)


def test_subclasses_beside_a_catalogue_are_discovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shapes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_base.py").write_text(
        "from abc import ABC, abstractmethod\n\n"
        "class Shape(ABC):\n    @abstractmethod\n    def area(self): ...\n\n"
        "class Hidden(Shape):\n    def area(self): return 0\n"
    )
    (package / "round.py").write_text(
        "from shapes._base import Shape\n\nclass Curved(Shape): ...\n\n"
        "class Circle(Curved):\n    def area(self): return 3\n"
    )
    (package / "square.py").write_text(
        "from shapes._base import Shape\nfrom shapes.round import Circle\n\n"
        "class Square(Shape):\n    def area(self): return 1\n"
    )
    (package / "catalogue.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    base = import_module("shapes._base").Shape
    for catalogue in ("shapes.catalogue", "shapes"):
        found = [type(item).__name__ for item in discover(catalogue, base)]
        assert found == ["Circle", "Square"]
