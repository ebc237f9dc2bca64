"""How long a user waits before anything happens. Each run is a process of its own."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.timing import benchmark


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)


@benchmark("import foretrain", target_seconds=0.1)
def import_foretrain() -> None:
    """A bare interpreter and the package."""
    _python("-c", "import foretrain")


@benchmark("foretrain --help", target_seconds=0.3)
def help_text() -> None:
    """The promise of the README."""
    _python("-m", "foretrain", "--help")


@benchmark("foretrain devices --json", target_seconds=0.8)
def all_devices_as_json() -> None:
    """A whole command: start, read every sheet, print."""
    _python("-m", "foretrain", "devices", "--json")
