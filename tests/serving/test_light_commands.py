"""`predict` and `converge` start without scipy, which takes longer to import than they take to answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOG = "step,loss\n" + "".join(f"{step},{0.5 + 3 * step**-0.4}\n" for step in range(100, 2000, 100))


@pytest.mark.parametrize(
    "arguments",
    [("converge", "{log}", "--target", "loss=0.6"), ("predict", "mnist-cnn", "--on", "t4")],
    ids=lambda arguments: str(arguments[0]),
)
def test_scipy_is_not_loaded(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    log = tmp_path / "log.csv"
    log.write_text(LOG, encoding="utf-8")
    command = [part.format(log=log) for part in arguments]
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "foretrain", *command],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in run.stderr.splitlines()}
    assert "foretrain" in loaded
    assert "scipy" not in loaded
