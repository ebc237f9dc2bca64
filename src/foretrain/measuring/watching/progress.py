"""From printed output to steps, for scripts that do not call `foretrain.step()`.

Lines are cut out of what a command prints, parsed, and counted. Parsers read progress bars: tqdm's (of
scripts, the Hugging Face Trainer and PyTorch Lightning), rich's (Lightning draws them where rich is
installed), and Keras',

    Epoch 0:  45%|████▌     | 45/100 [00:01<00:01, 40.00it/s, v_num=0]
    12it [00:03,  3.90it/s]
    Epoch 0/4  ━━━━━━━━━╸━━━━━━━━━━ 45/100 0:00:01 • 0:00:02 40.12it/s v_num: 0.000
    12/100 ━━━━━━━━━━━━━━━━━━━━ 3s 25ms/step - loss: 0.5031
    100/100 - 3s - 25ms/step - loss: 0.3012

and lines that are printed once: the summary of the Hugging Face Trainer, and those of scripts of their own.

    {'train_runtime': '2.03', 'train_samples_per_second': '394.1', 'train_steps_per_second': '24.6', ...}
    step 120/1000 loss 0.35 0.35 s/step
    iter 10: loss 2.3012, time 120.45ms
    iteration 100/ 500000 | elapsed time per iteration (ms): 1203.4 | ...
    Epoch: [0][ 10/391]  Time 0.123 ( 0.456)  Loss 6.9

Bars are updated now and then. Between two states of a bar the steps are taken as equally long: the time from
one state to the next, as it arrives, over the steps between them.

A new parser is a class here, listed in `parsers`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from foretrain.registry import Registry
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
"""A count that falls below this share of the last one began anew, as the bar of each epoch does."""
_MOST_STEPS_AT_ONCE = 100_000
"""A bar that jumps farther is not expanded into single steps."""
_BAR_RATE = r"(?:,\s*(?P<rate>[\d.]+|\?)\s*(?P<unit>s/)?(?P<what>[A-Za-z]*)(?P<per_second>/s)?)?"
_TQDM = re.compile(
    r"(?:(?P<title>[^|]*?):?\s+|^)\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)\s*\[[\d:]+<[\d:?]+" + _BAR_RATE
)
_TQDM_WITHOUT_TOTAL = re.compile(
    r"(?:(?P<title>[^|]*?):\s+|^)(?P<done>\d+)(?:it|step|batch)\w* \[[\d:]+" + _BAR_RATE
)
_STEP_UNITS = {"", "it", "iter", "step", "steps", "batch", "batches"}
_RICH = re.compile(
    r"(?P<title>[^━╸╺]*?)\s*[━╸╺]+\s+(?P<done>\d+)/(?P<total>\d+)\s+[\d:]+\s+•\s+\S+\s+(?P<rate>[\d.]+)it/s"
)
_KERAS = re.compile(
    r"^\s*(?P<done>\d+)/(?P<total>\d+)\s(?P<whole>-\s)?.*?(?P<time>[\d.]+)(?P<unit>us|ms|s)/(?:step|epoch)\b"
)
_TRAIN_RUNTIME = re.compile(r"'train_runtime': '?(?P<value>[\d.]+)")
_TRAIN_RATE = re.compile(r"'train_steps_per_second': '?(?P<value>[\d.]+)")
_COUNT = re.compile(
    r"\b(?P<word>global[_ ]step|step|iteration|iter|batch|it)\b[\s:=#\[(]*(?P<done>\d+)"
    r"(?:\s*(?:/|of)\s*(?P<total>\d+))?",
    re.IGNORECASE,
)
_IN_EPOCH = re.compile(r"\[\s*(?P<epoch>\d+)\]\s*\[\s*(?P<done>\d+)/\s*(?P<total>\d+)\]")
_UNITS = r"us|µs|ms|milliseconds|s|sec|secs|seconds"
_PER_STEP = re.compile(
    rf"(?P<time>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>{_UNITS})\s*(?:/|per)\s*(?:step|iteration|iter|it|batch)\b",
    re.IGNORECASE,
)
_NAMED_TIME = re.compile(
    r"\b(?:elapsed time per iteration|(?:step|iter|iteration|batch)[_ ]?time|time|dt)\b"
    rf"\s*(?:\((?P<before>{_UNITS})\))?\s*[:=]?\s*(?P<time>\d+(?:\.\d+)?(?:e-?\d+)?)\s*(?P<unit>{_UNITS})?(?![\w:])",
    re.IGNORECASE,
)
_LINE_RATE = re.compile(
    r"(?P<rate>\d+(?:\.\d+)?)\s*(?:it|iter|steps?|batch(?:es)?)/s(?:ec)?\b", re.IGNORECASE
)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "milliseconds": 1e-3, "s": 1.0}


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a line of output says about training steps.

    `bar` distinguishes progress bars of one parser (training, validation). `step_seconds` is the time of a
    step as printed; it is `exact` where the script timed the latest steps and not all since the start. A line
    that is a `whole_pass` stands for `done` steps of its own, whatever was printed before.
    """

    bar: str
    done: int
    total: int | None = None
    step_seconds: float | None = None
    exact: bool = False
    whole_pass: bool = False


class ProgressParser(ABC):
    """Reads one kind of progress output. Lines come without colours and without their end."""

    name: str
    """What the source of step times is called in results."""
    hint: str
    """A character that every line of this kind contains: other lines are not tried."""
    in_place: bool = True
    """Whether a line is drawn over the one before, so that its end comes only with the next one."""
    is_summary: bool = False
    """Whether it knows only the mean over the whole run: the last choice."""

    @abstractmethod
    def read(self, line: str) -> Observation | None:
        """What the line says, or None where it is of another kind."""


class TqdmBars(ProgressParser):
    """Bars that count iterations, steps or batches; bars of bytes, files or examples are left out."""

    name = "tqdm progress bar"
    hint = "["

    def read(self, line: str) -> Observation | None:
        """What a state of a bar says."""
        match = _TQDM.search(line) or _TQDM_WITHOUT_TOTAL.search(line)
        if match is None or (match["what"] or "") not in _STEP_UNITS:
            return None
        groups = match.groupdict()
        total = int(groups["total"]) if groups.get("total") else None
        return Observation(
            bar=f"{_bar_title(groups['title'] or '')}/{total}",
            done=int(groups["done"]),
            total=total,
            step_seconds=_tqdm_seconds(groups),
        )


def _bar_title(title: str) -> str:
    """The title of a bar without what changes from one epoch to the next."""
    return re.sub(r"\d+(?:/\d+)?", "#", title).strip()


def _tqdm_seconds(groups: dict[str, str | None]) -> float | None:
    rate = groups["rate"]
    if rate is None or rate == "?" or float(rate) == 0:
        return None
    return float(rate) if groups["unit"] else 1 / float(rate)


class RichBars(ProgressParser):
    """Bars with a rate in iterations per second."""

    name = "Lightning progress bar"
    hint = "•"

    def read(self, line: str) -> Observation | None:
        """What a state of a bar says."""
        match = _RICH.search(line)
        if match is None:
            return None
        rate, total = float(match["rate"]), int(match["total"])
        return Observation(
            bar=f"{_bar_title(match['title'])}/{total}",
            done=int(match["done"]),
            total=total,
            step_seconds=1 / rate if rate else None,
        )


class KerasBars(ProgressParser):
    """Lines of `fit` with `verbose` 1 and 2. The printed time is the mean since the start of the epoch."""

    name = "Keras progress bar"
    hint = "/"

    def read(self, line: str) -> Observation | None:
        """What a state of the epoch's bar says."""
        match = _KERAS.match(line)
        if match is None:
            return None
        total = int(match["total"])
        return Observation(
            bar=f"epoch/{total}",
            done=int(match["done"]),
            total=total,
            step_seconds=float(match["time"]) * _SECONDS[match["unit"]],
            whole_pass=match["whole"] is not None,
        )


class HuggingFaceSummary(ProgressParser):
    """The last line of `Trainer.train`: the mean over all steps, where no bar was shown."""

    name = "Hugging Face Trainer log"
    hint = "{"
    in_place = False
    is_summary = True

    def read(self, line: str) -> Observation | None:
        """The mean step time of the whole training."""
        runtime, rate = _TRAIN_RUNTIME.search(line), _TRAIN_RATE.search(line)
        if runtime is None or rate is None or float(rate["value"]) == 0:
            return None
        steps = round(float(runtime["value"]) * float(rate["value"]))
        return Observation(
            bar="train", done=steps, total=steps, step_seconds=1 / float(rate["value"]), exact=True
        )


class PrintedLines(ProgressParser):
    """A count of steps with a time, a rate, or nothing but the instant of the line."""

    name = "printed lines"
    hint = ""
    in_place = False

    def read(self, line: str) -> Observation | None:
        """The count of steps, and the time of a step where it is printed."""
        count = _IN_EPOCH.search(line) or _COUNT.search(line)
        if count is None:
            return None
        total = int(count["total"]) if count["total"] else None
        step_seconds = _line_seconds(line)
        return Observation(
            bar=f"{count.groupdict().get('word', 'epoch').lower()}/{total}",
            done=int(count["done"]),
            total=total,
            step_seconds=step_seconds,
            exact=step_seconds is not None,
        )


def _line_seconds(line: str) -> float | None:
    per_step = _PER_STEP.search(line)
    if per_step is not None:
        return float(per_step["time"]) * _factor(per_step["unit"])
    named = _NAMED_TIME.search(line)
    if named is not None:
        return float(named["time"]) * _factor(named["unit"] or named["before"])
    rate = _LINE_RATE.search(line)
    return 1 / float(rate["rate"]) if rate is not None and float(rate["rate"]) > 0 else None


def _factor(unit: str | None) -> float:
    """Seconds in a unit; a time without unit is in seconds."""
    return _SECONDS.get((unit or "s").lower(), 1.0)


@cache
def parsers() -> Registry[ProgressParser]:
    """The parsers in the order in which they are tried: bars come before printed lines."""
    listed = (TqdmBars(), RichBars(), KerasBars(), HuggingFaceSummary(), PrintedLines())
    return Registry("step source", listed, name=lambda parser: parser.name)


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
