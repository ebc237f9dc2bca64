"""Tests of tracing: nothing that another test traced."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def traced_graphs(tmp_path: Path) -> Path:
    """An empty folder, in place of the one that all other tests share."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    return folder
