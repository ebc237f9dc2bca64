"""All parsers of printed progress, by name. A new one is a new file beside this one."""

from __future__ import annotations

from functools import cache

from foretrain.measuring.watching.step_sources._base import ProgressParser
from foretrain.registry import Registry, discovered


@cache
def parsers() -> Registry[ProgressParser]:
    """The parsers; bars come before printed lines, in the order of their files."""
    listed = discovered(__name__, ProgressParser)  # type: ignore[type-abstract]
    return Registry("step source", listed, name=lambda parser: parser.name)
