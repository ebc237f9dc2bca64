"""The registry of policies."""

from __future__ import annotations

from functools import cache

from foretrain.registry import Registry, discovered
from foretrain.scheduling.loop import Policy


@cache
def policies() -> Registry[Policy]:
    """All policies, in order of their names."""
    return Registry(
        "policy",
        sorted(discovered(__name__, Policy), key=lambda each: each.name),  # type: ignore[type-abstract]
        name=lambda each: each.name,
        hint="List them with `foretrain simulate --help`.",
    )
