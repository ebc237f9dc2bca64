"""What was found out about a graph, kept with it as its own cached properties are.

For facts that modules above graphs work out and ask for again and again; they are gone with the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from foretrain.workloads.graph import Graph

Found = TypeVar("Found")


def kept(graph: Graph, name: str, find: Callable[[Graph], Found]) -> Found:
    """What `find` finds, found once."""
    known = graph.__dict__
    if name not in known:
        known[name] = find(graph)
    found: Found = known[name]
    return found
