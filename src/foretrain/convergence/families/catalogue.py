"""All families of curves, by name: every `Family` in the modules of this package."""

from __future__ import annotations

from functools import cache

from foretrain.convergence.families._base import Family
from foretrain.registry import Registry, discovered


@cache
def families() -> Registry[Family]:
    """The families, by name."""
    known = tuple(discovered(__name__, Family))  # type: ignore[type-abstract]
    hint = f"Known: {', '.join(family.name for family in known)}"
    return Registry("curve family", known, name=lambda family: family.name, hint=hint)
