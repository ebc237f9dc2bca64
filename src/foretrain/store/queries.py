"""Which runs of a store are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from foretrain.store.runs import Status


@dataclass(frozen=True, kw_only=True)
class RunQuery:
    """Conditions that a run must all meet; None and an empty tuple are no condition.

    `model` is the model of its setting, `device` that of its environment. `ids` are whole ids. `limit` keeps
    the newest runs.
    """

    model: str | None = None
    device: str | None = None
    campaign: str | None = None
    status: Status | None = None
    since: datetime | None = None
    ids: tuple[str, ...] = ()
    limit: int | None = None
