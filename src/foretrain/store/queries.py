"""Which runs of a store are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from foretrain.errors import InvalidRequest, UnknownName
from foretrain.store.runs import Status
from foretrain.units import UnitError, parse_duration

ALL = "all"


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


def parse_query(text: str) -> RunQuery:
    """The query of `all`, or of conditions such as `model=resnet18,device=here,since=7d`."""
    if text.strip() in ("", ALL):
        return RunQuery()
    conditions: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _CONDITIONS:
            raise UnknownName("condition on runs", name, _CONDITIONS, f"Conditions: {', '.join(_CONDITIONS)}")
        if not equals or not value:
            raise InvalidRequest(f"{part.strip()!r} is no condition on runs; write it as {name}=VALUE")
        conditions[name] = value
    status, since, limit = (conditions.pop(name, None) for name in ("status", "since", "limit"))
    return RunQuery(
        **conditions,  # type: ignore[arg-type]
        status=None if status is None else _status(status),
        since=None if since is None else parse_since(since),
        limit=None if limit is None else _limit(limit),
    )


_CONDITIONS = ("model", "device", "campaign", "status", "since", "limit")


def _status(text: str) -> Status:
    known = {status.value.replace(" ", "-"): status for status in Status}
    if text not in known:
        raise UnknownName("status of a run", text, known, f"Statuses: {', '.join(known)}")
    return known[text]


def _limit(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InvalidRequest(f"limit is {text!r}; it must be a whole number of at least 1")
    return int(text)


def parse_since(text: str) -> datetime:
    """A date such as 2026-11-16, or a duration before now such as 7d."""
    try:
        start = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - timedelta(seconds=parse_duration(text))
        except (UnitError, OverflowError) as error:
            raise InvalidRequest(
                f"since is {text!r}; it must be a date such as 2026-11-16, or a duration such as 7d"
            ) from error
    return start.astimezone(UTC) if start.utcoffset() is not None else start.replace(tzinfo=UTC)
