"""The command line. `main` is the entry point; each command is a file of its own."""

from __future__ import annotations

import os
import sys

from foretrain.errors import ForetrainError
from foretrain.units import UnitError


def main() -> None:
    """Run the command line; errors become one sentence on stderr and the documented exit code."""
    from foretrain.serving.cli.app import app

    try:
        app()
    except ForetrainError as error:
        fail(str(error), error.exit_code)
    except UnitError as error:
        fail(str(error), 2)
    except BrokenPipeError:  # the reader (head, less) went away: not an error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def fail(sentence: str, exit_code: int) -> None:
    """Say what was wrong on stderr and leave."""
    label = "\033[1;31merror:\033[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else "error:"
    sys.stderr.write(f"{label} {sentence}\n")
    sys.exit(exit_code)
