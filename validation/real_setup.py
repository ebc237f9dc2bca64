"""Get this machine ready for network namespaces: iproute2 is installed where it is absent."""

from __future__ import annotations

import os
import shutil
import subprocess

from foretrain.errors import MissingData
from foretrain.measuring.distributed_trials.namespaces import why_not

_INSTALL = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "iproute2"))


def ensure_namespaces() -> None:
    """Make sure that namespaces can be made, installing iproute2 on Debian as root; else say what to do."""
    if why_not() and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in _INSTALL:
            subprocess.run(command, check=False, capture_output=True)
    problem = why_not()
    if problem:
        raise MissingData(problem)
