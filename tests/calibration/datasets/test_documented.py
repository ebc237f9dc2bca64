"""Every file that a reader expects is described in docs/datasets.md."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest

import calibration.datasets

PAGE = Path(__file__).parents[3] / "docs" / "datasets.md"
READERS = [module.name for module in pkgutil.iter_modules(calibration.datasets.__path__)]


@pytest.mark.parametrize("name", READERS)
def test_the_page_describes_the_files_of_a_reader(name: str) -> None:
    reader = importlib.import_module(f"calibration.datasets.{name}")
    files = [value for key, value in vars(reader).items() if key.endswith("FILE") and isinstance(value, Path)]
    page = PAGE.read_text(encoding="utf-8")
    assert [file for file in files if f"`{file}`" not in page] == []
