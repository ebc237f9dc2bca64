"""From printed output to steps: lines are cut out of what a command prints, parsed, and counted.

Bars are updated now and then. Between two states of a bar the steps are taken as equally long: the time from
one state to the next, as it arrives, over the steps between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from foretrain.measuring.watching.step_sources._base import Observation, ProgressParser
from foretrain.store.runs import WorkerSteps

_LONGEST_LINE = 2048
"""Longer lines are no progress: binary output, dumps."""
_LINE_END = re.compile(rb"[\r\n\x08]+|\x1b\[\d*[AEFG]")
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_RANK_PREFIX = re.compile(r"^\[(?:rank|default)?(?P<rank>\d+)\](?:<\w+>)?:\s?")
_NOT_TRAINING = re.compile(
    r"valid|eval|test|predict|sanity|load|download|upload|map|filter|generat|sav|shard|token|fetch|quant",
    re.IGNORECASE,
)
_RESTART_SHARE = 0.5
_MOST_STEPS_AT_ONCE = 100_000


class LineCutter:
    """Cuts a stream of bytes into lines: at line ends, carriage returns, and where a cursor moves up."""

    def __init__(self) -> None:
        self._rest = b""

    def lines(self, data: bytes) -> Iterable[str]:
        """The lines that these bytes complete, without colours. The state of a bar counts as a line."""
        pieces = _LINE_END.split(self._rest + data)
        self._rest = pieces.pop()[-_LONGEST_LINE:]
        for piece in pieces:
            if piece and len(piece) <= _LONGEST_LINE:
                yield _CONTROL.sub(b"", piece).decode(errors="replace")

    def rest(self) -> str:
        """What came after the last line end: the latest state of a bar that is drawn in place."""
        return _CONTROL.sub(b"", self._rest).decode(errors="replace")


@dataclass
class _Bar:
    """The states of one bar."""

    done: int = 0
    at: float | None = None
    total: int | None = None
    ends: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class ProgressLog:
    """Collects what parsers read, and answers which bar counts the training steps."""

    def __init__(self, parsers: Sequence[ProgressParser]) -> None:
        self._parsers = tuple(parsers)
        self._bars: dict[tuple[str, str], _Bar] = {}

    def read(self, line: str, at: float, is_whole: bool = True) -> None:
        """Parse a line that arrived at a time in seconds since the start, or the present state of a bar."""
        prefix = _RANK_PREFIX.match(line)
        if prefix is not None:
            if prefix["rank"] != "0":
                return
            line = line[prefix.end() :]
        for parser in self._parsers:
            if parser.hint in line and (is_whole or parser.in_place):
                observation = parser.read(line)
                if observation is not None:
                    _advance(self._bars.setdefault((parser.name, observation.bar), _Bar()), observation, at)
                    return

    def steps(self) -> tuple[str, WorkerSteps] | None:
        """The source and the steps of the bar that counts training steps; None without one."""
        chosen = self._chosen()
        if chosen is None:
            return None
        (source, _), bar = chosen
        return source, WorkerSteps(worker=0, ends=np.array(bar.ends), seconds=np.array(bar.seconds))

    def position(self) -> tuple[int, int | None]:
        """Steps done in the present pass, and their total where it is known."""
        chosen = self._chosen()
        return (0, None) if chosen is None else (chosen[1].done, chosen[1].total)

    def _chosen(self) -> tuple[tuple[str, str], _Bar] | None:
        """The bar with most steps, except those of validation and of loading; a summary comes last."""
        summaries = {parser.name for parser in self._parsers if parser.is_summary}
        timed = [
            (key, bar) for key, bar in self._bars.items() if bar.seconds and not _NOT_TRAINING.search(key[1])
        ]
        return max(timed, key=lambda item: (item[0][0] not in summaries, len(item[1].seconds)), default=None)


def _advance(bar: _Bar, observation: Observation, at: float) -> None:
    if observation.whole_pass or observation.done < _RESTART_SHARE * bar.done:
        bar.done, bar.at = 0, None
    count = observation.done - bar.done
    if count > 0:
        started = bar.at
        step_seconds = _step_seconds(observation, started, at, count)
        if step_seconds is not None and count <= _MOST_STEPS_AT_ONCE:
            begin = at - step_seconds * count if started is None else started
            bar.ends += np.linspace(begin, at, count + 1)[1:].tolist()
            bar.seconds += [step_seconds] * count
    if count > 0 or observation.done == 0:
        bar.done, bar.at = observation.done, at
    bar.total = observation.total


def _step_seconds(observation: Observation, started: float | None, at: float, count: int) -> float | None:
    """The printed time where it is exact or all there is; else the time since the last state."""
    if observation.exact or started is None:
        return observation.step_seconds
    return (at - started) / count
