"""Where foretrain keeps what a user gave it: imported prices, measurements."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def user_data_dir() -> Path:
    """The user's own data directory: `FORETRAIN_HOME` if set, else the platform's place for it."""
    override = os.environ.get("FORETRAIN_HOME")
    return Path(override) if override else Path(platformdirs.user_data_dir("foretrain"))
