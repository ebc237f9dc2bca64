"""The tolerance of the golden numbers, as an option of pytest."""

from __future__ import annotations

import pytest
from tests.golden.recording import RELATIVE_TOLERANCE


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-tolerance",
        type=float,
        default=RELATIVE_TOLERANCE,
        help="relative tolerance of the golden numbers (default: %(default)s; 1e-9 while refactoring)",
    )


@pytest.fixture
def golden_tolerance(pytestconfig: pytest.Config) -> float:
    """The relative difference from which on a number counts as changed."""
    tolerance: float = pytestconfig.getoption("golden_tolerance", RELATIVE_TOLERANCE)
    return tolerance
