"""Which kind of parameter server, and how many of them: `ps-sync`, `ps-ksync=3`, `ps-async,servers=2`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foretrain.errors import InvalidRequest

FORM = re.compile(r"ps-(sync|async|ksync|kbatchsync|kasync|kbatchasync)(?:=(\d+))?(?:,servers=(\d+))?")


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """How servers wait: for all workers, for none, or for the first `k`; `servers` share the parameters."""

    variant: str
    k: int
    servers: int


def server_plan(strategy: str, workers: int) -> ServerPlan:
    """The plan a strategy's name stands for, with so many workers."""
    found = FORM.fullmatch(strategy)
    if not found:
        raise InvalidRequest(
            f"strategy {strategy!r}: write ps-sync, ps-async, ps-ksync=K, ps-kbatchsync=K, ps-kasync=K or "
            "ps-kbatchasync=K, each with ,servers=S for several servers"
        )
    variant, k, servers = found.group(1), found.group(2), int(found.group(3) or 1)
    waits_for_some = variant.startswith("k")
    if waits_for_some != (k is not None):
        need = f"needs a number: ps-{variant}=K" if waits_for_some else "takes no number"
        raise InvalidRequest(f"strategy {strategy!r}: ps-{variant} {need}")
    wanted = int(k) if k else (workers if variant == "sync" else 1)
    if not 1 <= wanted <= workers:
        raise InvalidRequest(f"{strategy}: waiting for {wanted} of {workers} workers; K is 1 to {workers}")
    if servers < 1:
        raise InvalidRequest(f"{strategy}: give at least one server")
    return ServerPlan(variant, wanted, servers)
