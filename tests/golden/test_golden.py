"""The numbers of many requests are as recorded. README.md says when a recorded number may change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.golden.recording import (
    Answer,
    Request,
    answer,
    differences,
    read_golden,
    report,
    requests,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

SHOWN = 12
recorded = cache(read_golden)


@pytest.fixture(autouse=True, scope="module")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One folder for all requests and all pytest workers: a model is traced once."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "golden-home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETRAIN_HOME", str(home))
        yield home


@pytest.mark.parametrize("request_", requests(), ids=lambda request: request.name)
def test_numbers_are_as_recorded(request_: Request, golden_tolerance: float) -> None:
    golden = recorded(request_.group).get(request_.name)
    assert golden is not None, f"not recorded: python -m tests.golden.record {request_.name}"
    _compare(request_, golden, answer(request_), golden_tolerance)


def _compare(request: Request, golden: Answer, now: Answer, tolerance: float) -> None:
    found = differences(golden, now, tolerance)
    if found:
        pytest.fail("\n".join([f"foretrain {request.command}", *report(found, SHOWN)]), pytrace=False)


def test_every_recorded_answer_has_a_request() -> None:
    listed = requests()
    for group in {request.group for request in listed}:
        names = {request.name for request in listed if request.group == group}
        assert set(recorded(group)) == names
