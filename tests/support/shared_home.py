"""One home for all tests of the modules that ask for it: a model is traced once, and not for each test.

Import `own_home` into a test module, in place of the one for every test. Nothing but graphs is kept there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="module")
def own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same folder throughout a run of the tests."""
    home = tmp_path_factory.getbasetemp() / "home-with-graphs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETRAIN_HOME", str(home))
        yield home
