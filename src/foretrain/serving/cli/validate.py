"""`foretrain validate`: accuracy on public measurements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from foretrain.serving.cli.parameters import Json

Suite = Annotated[list[str] | None, typer.Option("--suite", help="Only this suite; may be repeated.")]
Data = Annotated[Path | None, typer.Option("--data", help="Folder of the measurements (FORETRAIN_DATA).")]


def validate(suite: Suite = None, data: Data = None, json: Json = False) -> None:
    """Run the accuracy suites on public measurements.

    \b
    Examples:
      foretrain validate --suite memory --data ../shared/datasets
    """
    from foretrain.errors import MissingData

    root = Path(__file__).parents[4]
    if not (root / "validation" / "__main__.py").is_file():
        raise MissingData(
            "the accuracy suites are part of the source repository: run this in a checkout of it"
        )
    arguments = [part for name in suite or () for part in ("--suite", name)]
    if data is not None:
        arguments += ["--data", str(data.resolve())]
    if json:
        arguments.append("--json")
    command = [sys.executable, "-m", "validation", *arguments]
    raise typer.Exit(subprocess.run(command, cwd=root, env=os.environ, check=False).returncode)
