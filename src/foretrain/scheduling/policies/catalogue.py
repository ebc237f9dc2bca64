"""The registry of policies."""

from __future__ import annotations

from functools import cache

from foretrain.registry import Registry, discovered
from foretrain.scheduling.policy import Policy

DEFAULT = "auto"


@cache
def policies() -> Registry[Policy]:
    """All policies by name."""
    return Registry(
        "policy",
        discovered(__name__, Policy),  # type: ignore[type-abstract]
        name=lambda each: each.name,
        hint="List them with `foretrain simulate --help`.",
    )
