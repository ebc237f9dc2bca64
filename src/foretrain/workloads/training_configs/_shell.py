"""The arguments that a shell script gives to a training program, without running it.

Read are variables (`TP=8`, `${TP:-8}`, `$((A*B))`), arrays (`ARGS=(...)`, `ARGS+=(...)`), and `if` with
a comparison of known words. What depends on anything else keeps its text, so that a number read from it is
refused by name.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foretrain.errors import InvalidData

_ASSIGNMENT = re.compile(r"^(?:export\s+|local\s+)?([A-Za-z_]\w*)(\+?)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?:(:?-)([^}]*))?(\[[@*]\])?\}|\$([A-Za-z_]\w*)")
_ARITHMETIC = re.compile(r"\$\(\(([^()]*(?:\([^()]*\)[^()]*)*)\)\)")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "=": operator.eq, "!=": operator.ne, "-eq": operator.eq, "-ne": operator.ne,
}  # fmt: skip
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def read_arguments(text: str, file: Path) -> dict[str, Any]:
    """Arguments by name, without leading dashes, with underscores; one without a value is True."""
    try:
        words = _training_words(text)
    except ValueError as error:
        raise InvalidData(str(file), f"is not a shell script or list of arguments: {error}") from error
    arguments: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            name = name.replace("-", "_")
            arguments[name] = value if equals else True
        elif name:
            before = arguments[name]
            arguments[name] = word if before is True else f"{before} {word}"
    return arguments


def _training_words(text: str) -> list[str]:
    """The words of the command that runs a Python program, or of the whole text where none does."""
    scalars: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    commands: list[list[str]] = []
    taken: list[bool] = []
    for statement in _statements(text):
        first = statement.split(maxsplit=1)[0].rstrip(";")
        if first == "if":
            taken.append(_holds(statement, scalars))
        elif first in ("elif", "else") and taken:
            taken[-1] = not taken[-1] if first == "else" else _holds(statement, scalars)
        elif first == "fi" and taken:
            taken.pop()
        elif all(taken):
            match = _ASSIGNMENT.match(statement)
            if match is None:
                commands.append(_expand_words(statement, scalars, arrays))
                continue
            name, adds, value = match.groups()
            if value.startswith("("):
                words = _expand_words(value.strip()[1:].removesuffix(")"), scalars, arrays)
                arrays[name] = [*(arrays.get(name, ()) if adds else ()), *words]
            else:
                new = _expand(" ".join(shlex.split(value, comments=True)), scalars)
                scalars[name] = f"{scalars.get(name, '')}{new}" if adds else new
    running = [words for words in commands if any(word.endswith(".py") for word in words)]
    return [word for words in (running or commands) for word in words]


def _statements(text: str) -> Iterator[str]:
    """Lines, those that continue joined; arrays and quotes end where they are closed."""
    pending = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            continue
        if not pending.startswith("'") and '"' not in pending:
            bare = re.sub(r"(?<=\s)#.*$", "", bare).rstrip()
        continues = bare.endswith("\\")
        pending = f"{pending} {bare.removesuffix(chr(92))}".strip()
        opened = pending.count("(") - pending.count(")") > 0 and _ASSIGNMENT.match(pending) is not None
        if pending and not (continues or opened or pending.count('"') % 2):
            yield pending
            pending = ""
    if pending:
        yield pending


def _holds(statement: str, scalars: Mapping[str, str]) -> bool:
    """Whether a comparison of two words holds; any other condition does not."""
    inner = re.search(r"\[\[?\s+(.+?)\s+\]\]?", statement)
    if inner is None or "||" in statement or "&&" in statement:
        return False
    words = [_expand(word, scalars) for word in shlex.split(inner.group(1))]
    return len(words) == 3 and words[1] in _COMPARISONS and _COMPARISONS[words[1]](words[0], words[2])


def _expand_words(text: str, scalars: Mapping[str, str], arrays: Mapping[str, list[str]]) -> list[str]:
    words: list[str] = []
    for word in shlex.split(text, comments=True):
        name = _VARIABLE.fullmatch(word)
        array = None if name is None else arrays.get(name.group(1) or name.group(5))
        # Variables that hold several arguments are split as the shell splits them
        words += _expand(word, scalars).split() if array is None else array
    return words


def _expand(text: str, scalars: Mapping[str, str]) -> str:
    def of(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(5)
        default = match.group(3)
        fallback = match.group(0) if default is None else default.strip("\"'")
        return scalars.get(name, fallback)

    expanded = _VARIABLE.sub(of, text)
    return _ARITHMETIC.sub(lambda match: _calculate(match, scalars), expanded)


def _calculate(match: re.Match[str], scalars: Mapping[str, str]) -> str:
    """A product, quotient, sum or difference of whole numbers and variables; else the text itself."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(scalars[node.id])
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(node)

    try:
        return str(value(ast.parse(match.group(1).strip().replace("/", "//"), mode="eval").body))
    except (ValueError, KeyError, SyntaxError, ZeroDivisionError):
        return match.group(0)
