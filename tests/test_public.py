"""The public names: exactly those the package documents, all importable, none loaded before it is used."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import foretrain
from foretrain import errors
from foretrain.serving.table import VERBS, homes

HEAVY = ("torch", "fastapi", "sklearn", "scipy", "vl_convert", "plotext", "numpy", "rich", "click", "yaml")


def documented() -> list[str]:
    """The first column of the table in the package's docstring."""
    rows = re.findall(r"^ {4}(\S+(?:, \S+)*) {2,}\S", foretrain.__doc__ or "", flags=re.MULTILINE)
    return [name for row in rows for name in row.split(", ")]


def seen_by_type_checkers() -> set[str]:
    """The imports and functions of the stub."""
    tree = ast.parse(Path(foretrain.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module]
    imported = [alias for node in imports if str(node.module).startswith("foretrain") for alias in node.names]
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {alias.asname or alias.name for alias in imported} | functions


def test_what_is_exported_is_a_verb_with_its_request_and_answers_or_documented() -> None:
    of_verbs = {*VERBS, *homes()}
    assert sorted(foretrain.__all__) == sorted(["__version__", *of_verbs, *documented()])


def test_type_checkers_and_the_loader_know_the_same_names() -> None:
    assert seen_by_type_checkers() == set(foretrain.__all__) - {"__version__"}


@pytest.mark.parametrize("name", foretrain.__all__)
def test_each_name_can_be_used_and_is_listed(name: str) -> None:
    assert getattr(foretrain, name) is not None
    assert name in dir(foretrain)


def test_every_error_a_user_can_meet_is_exported() -> None:
    kinds = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert {name for name in kinds if issubclass(getattr(errors, name), Exception)} <= set(foretrain.__all__)


def test_public_names_are_the_things_themselves() -> None:
    assert foretrain.device("v100-sxm2-16gb").family == "v100"
    assert (
        foretrain.search_offers(foretrain.OfferQuery(gpu="k80", limit=1, historical=True, all_regions=True))[
            0
        ].family
        == "k80"
    )
    answer = foretrain.rent_or_buy(price=8000, rent=1.5)
    assert answer.break_even_hours == pytest.approx(8000 / 1.5)


def test_unknown_names_are_refused_as_of_any_module() -> None:
    with pytest.raises(AttributeError, match="'foretrain' has no attribute 'predictt'"):
        getattr(foretrain, "predictt")  # noqa: B009
    assert not hasattr(foretrain, "import_everything")


@pytest.mark.parametrize("arguments", [["-c", "import foretrain"], ["-m", "foretrain", "--help"]])
def test_import_and_help_load_nothing_heavy(arguments: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    assert "foretrain" in loaded
    allowed = {"click"} if "--help" in arguments else set()
    assert loaded & set(HEAVY) <= allowed
