"""Measured collectives: which verb, how many devices of which machine, how many bytes, how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foretrain.prediction.collectives._base import Verb


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """One collective inside one node. `machine` is hardware as people write it, `topology` that of its links.

    `bytes` is the whole message, as in `Verb`; `sums` says that the switch can sum numbers of that type.
    """

    source: str
    machine: str
    topology: str
    verb: Verb
    devices: int
    bytes: float
    seconds: float
    sums: bool = True


def powers_of_two(times: Iterable[CollectiveTime], unit: int) -> tuple[CollectiveTime, ...]:
    """Only messages of a power of two units, where a data set steps through sizes evenly."""
    return tuple(time for time in times if _is_power(time.bytes / unit))


def _is_power(count: float) -> bool:
    whole = int(count)
    return whole == count and whole > 0 and whole & (whole - 1) == 0
