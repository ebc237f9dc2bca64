"""Each model of foretrain has a page: where it is, its equations as the code has them, where it fails."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from validation.targets import suites

from foretrain.convergence.families import families
from foretrain.learning.regression.techniques._base import techniques
from foretrain.prediction.operators.pricing import OperatorModel, RooflineModel
from foretrain.prediction.strategies.strategy import strategies
from foretrain.registry import discover

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "foretrain"
PAGES = sorted(page for page in (ROOT / "docs" / "models").glob("*.md") if page.name != "index.md")
SECTIONS = ["Equations", "Valid for", "Where it fails"]


@cache
def head(page: Path) -> dict[str, list[str]]:
    """What a page says it is about."""
    found: dict[str, list[str]] = yaml.safe_load(page.read_text("utf-8").split("---\n")[1])
    return found


def modules_with_pages() -> set[str]:
    return {name.partition("::")[0] for page in PAGES for name in head(page)["modules"]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_code_constants_and_suites_that_exist(page: Path) -> None:
    about = head(page)
    assert set(about) == {"modules", "constants", "accuracy"}
    files = [PACKAGE / name.partition("::")[0] for name in about["modules"]]
    assert files
    assert [file for file in files if not file.is_file()] == []
    assert [name for name in about["constants"] if not (PACKAGE / name).exists()] == []
    judged = {suite.id: [target.what for target in suite.targets] for suite in suites()}
    for name, _, text in (each.partition(":") for each in about["accuracy"]):
        assert any(text in what for what in judged[name])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_equations_validity_and_failures(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    for section in SECTIONS:
        body = text.split(f"## {section}\n")[1].split("\n## ")[0]
        assert len(body.split()) > 8, section


def test_every_operator_model_has_a_page() -> None:
    found = discover("foretrain.prediction.operators.pricing", OperatorModel)  # type: ignore[type-abstract]
    homes = {_home(type(each)) for each in (*found, RooflineModel())}
    assert len(homes) > 5
    assert homes - modules_with_pages() == set()


def test_every_strategy_has_a_page() -> None:
    assert {_home(type(each)) for each in strategies().values()} - modules_with_pages() == set()


def test_every_law_of_convergence_and_technique_of_regression_has_a_page() -> None:
    homes = {_home(type(each)) for each in (*families().values(), *techniques().values())}
    assert homes - modules_with_pages() == set()


def test_every_calibration_that_ships_is_named_on_a_page() -> None:
    files = {
        f"facts/data/calibrations/{each.name}" for each in (PACKAGE / "facts/data/calibrations").iterdir()
    }
    assert files - {name for page in PAGES for name in head(page)["constants"]} == set()


def test_every_page_is_in_the_overview_and_in_the_navigation() -> None:
    overview = (ROOT / "docs" / "models" / "index.md").read_text("utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [page.name for page in PAGES if f"({page.name})" not in overview] == []
    assert [page.name for page in PAGES if f"models/{page.name}\n" not in navigation] == []


def _home(kind: type) -> str:
    return Path(inspect.getfile(kind)).relative_to(PACKAGE).as_posix()
