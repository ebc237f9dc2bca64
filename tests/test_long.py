"""Every test that `long.yaml` leaves to `make test-all` exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
LISTED = yaml.safe_load((Path(__file__).parent / "long.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("file", "tests"), LISTED.items())
def test_every_listed_test_exists(file: str, tests: dict[str, str]) -> None:
    source = (ROOT / file).read_text("utf-8")
    for test, reason in tests.items():
        function = test.partition("[")[0].rpartition("::")[2]
        assert reason
        assert re.search(rf"def {function}\(", source) or "Suite" in source, test
