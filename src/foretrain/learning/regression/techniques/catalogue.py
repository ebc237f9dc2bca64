"""All techniques by name."""

from __future__ import annotations

from functools import cache

from foretrain.learning.regression.techniques._base import Technique
from foretrain.registry import Registry, discovered


@cache
def techniques() -> Registry[Technique]:
    """Every technique defined beside this file."""
    known = tuple(discovered(__name__, Technique))  # type: ignore[type-abstract]
    return Registry("technique", known, name=lambda each: each.name, hint="Known: " + ", ".join(
        sorted(each.name for each in known)))  # fmt: skip
