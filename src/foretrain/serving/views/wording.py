"""Numbers, sentences and names of options as they stand in a report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrain.serving.views.blocks import Notes


SPACE = "\u00a0"
"""Keeps a number and its unit on one line."""
_ALMOST = 0.995


def together(text: str) -> str:
    """A quantity that is not to be broken over two lines."""
    return text.replace(" ", SPACE)


def percent(share: float, digits: int = 0) -> str:
    """`17.2 %`; what is not nothing is never written as 0."""
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"<{SPACE}{least:.{digits}f}{SPACE}%"
    return f"{100 * share:,.{digits}f}{SPACE}%"


def amount(value: float) -> str:
    """Three digits: `0.389`, `2.62`, `24.5`, `1,230`."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 6)}f}"


def expected_interruptions(count: float) -> str:
    """`2.22 interruptions expected`; below one in a hundred runs, none is."""
    return "no interruption expected" if count < 0.01 else f"{amount(count)} interruptions expected"


def probability(share: float) -> str:
    """`93 %`; nothing is certain, so never 0 or 100."""
    if share >= _ALMOST:
        return f"over {percent(0.99)}"
    return f"under {percent(0.01)}" if share < 1 - _ALMOST else percent(share)


def between(low: str, high: str) -> str:
    """What holds with 80 % probability: `80 % between 4h 50m and 6h 30m`."""
    return f"80{SPACE}% between {together(low)} and {together(high)}"


def sentence(text: str) -> str:
    """A remark with a capital and a full stop; nothing stays nothing."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text else ""


def notes(entries: Iterable[str], indent: int = 0) -> Notes:
    """Remarks of the core, with fields spelled as options."""
    from foretrain.serving.views.blocks import Notes  # a JSON answer needs no blocks

    return Notes(tuple(as_flags(entry) for entry in entries), indent)


def flag(name: str) -> str:
    """A field as an option of the command line: `--global-batch`."""
    return f"--{name.replace('_', '-')}"


def as_flags(text: str, more: Iterable[str] = ()) -> str:
    """A message of the core with its fields spelled as options: `global_batch` becomes --global-batch.

    `more` are names of options beyond those of the requests.
    """
    if "`" not in text and "_" not in text:
        return text
    further = set(more)

    def spelled(match: re.Match[str]) -> str:
        quoted, bare = match.group(1), match.group(2)
        name = quoted or bare
        is_option = bool(name) and (name in further or _is_option(name))
        return flag(name) if is_option else match.group(0)

    bare = r"(?<![\w`'\"/.=-])([a-z][a-z0-9]*(?:_[a-z]+)+)(?!\w|\.\w|[`'\"/=(-])"
    code = r"`[^`\n]*[^a-z0-9_`\n][^`\n]*`"  # an example, such as the first lines of a file, stays as it is
    return re.sub(rf"{code}|`([a-z0-9_]+)`|{bare}", spelled, text)


@cache
def _is_option(name: str) -> bool:
    """Whether a verb has an option of this name; requests are imported up to the first one that has it."""
    from foretrain.decoding import options
    from foretrain.serving.table import VERBS

    if name in ("predict", "here"):  # in most texts, the verb and the device
        return False
    requests = (verb.request_class for verb in VERBS.values())
    return any(each.name == name and not each.positional for cls in requests for each in options(cls))
