"""The command line as it was typed, for reports to say what made them."""

from __future__ import annotations

import shlex
import sys


def as_typed() -> str:
    """`foretrain plan resnet50 ...`, quoted as a shell wants it."""
    return shlex.join(["foretrain", *sys.argv[1:]])
