"""`foretrain validate` answers that there are no stored runs yet, and where the public suites are."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_without_stored_runs_data_is_missing(
    run_here: Callable[..., CompletedProcess[str]], arguments: tuple[str, ...]
) -> None:
    result = run_here("validate", *arguments)
    assert (result.returncode, result.stdout) == (3, "")
    assert "no stored runs" in result.stderr
    assert "`make validate` in a source checkout" in result.stderr
