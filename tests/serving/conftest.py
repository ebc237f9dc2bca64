"""Commands as their users run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def predicted(run_here: Run) -> Callable[..., dict[str, Any]]:
    """What a command answers with `--json`; it must end well."""

    def run(*arguments: str) -> dict[str, Any]:
        evaluation = run_here(*arguments, "--json")
        assert evaluation.returncode == 0, evaluation.stderr
        found: dict[str, Any] = json.loads(evaluation.stdout)
        return found

    return run
