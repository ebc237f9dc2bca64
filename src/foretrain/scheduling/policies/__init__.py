"""Scheduling policies: every `Policy` in the files of this package, by name."""

from __future__ import annotations

from functools import cache

from foretrain.registry import Registry, discover
from foretrain.scheduling.loop import Policy


@cache
def policies() -> Registry[Policy]:
    """All policies, in order of their names."""
    return Registry(
        "policy",
        sorted(discover(__name__, Policy), key=lambda each: each.name),  # type: ignore[type-abstract]
        name=lambda each: each.name,
        hint="List them with `foretrain simulate --help`.",
    )
