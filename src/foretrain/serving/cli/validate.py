"""`foretrain validate`: accuracy on public measurements."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from foretrain.decoding import FILE, option, texts
from foretrain.serving.cli.frame import Command
from foretrain.serving.cli.output import Output
from foretrain.serving.requests import Request


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """Which suites to run, on which data."""

    VERB = "validate"

    suite: tuple[str, ...] = option(texts(), "Only this suite; may be repeated.", default=(), metavar="NAME")
    data: Path | None = option(FILE, "Folder of the measurements (FORETRAIN_DATA).", metavar="FOLDER")


def run(request: ValidateRequest, output: Output) -> int:
    """Run the suites in a process of their own."""
    from foretrain.errors import MissingData

    root = Path(__file__).parents[4]
    if not (root / "validation" / "__main__.py").is_file():
        raise MissingData(
            "the accuracy suites are part of the source repository: run this in a checkout of it"
        )
    arguments = [part for name in request.suite for part in ("--suite", name)]
    if request.data is not None:
        arguments += ["--data", str(request.data.resolve())]
    if output.json:
        arguments.append("--json")
    command = [sys.executable, "-m", "validation", *arguments]
    return subprocess.run(command, cwd=root, env=os.environ, check=False).returncode


COMMAND = Command(
    ValidateRequest, Output, run, examples=("foretrain validate --suite memory --data ../shared/datasets",)
)
