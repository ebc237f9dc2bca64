"""What can go wrong, and how each front end says so.

    ForetrainError
    ├── InvalidRequest   the request contradicts itself or makes no sense       exit 2, HTTP 422
    │   └── InvalidData  a file that was handed in is malformed (row is named)  exit 2, HTTP 422
    ├── UnknownName      an unknown device, offer, operator, model ...          exit 2, HTTP 404
    ├── MissingData      the question is fine, but a fact or file is absent     exit 3, HTTP 409
    └── BackendFailed    something outside foretrain failed                     exit 4, HTTP 502

`Infeasible` (`answers.py`) is no error but an answer: the request was understood and nothing satisfies it.
Commands exit with 1 for it only under `--check`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

EXIT_INFEASIBLE = 1


class ForetrainError(Exception):
    """Base of all errors a user can cause or fix; `str(error)` is a sentence for the user."""

    exit_code: ClassVar[int]
    http_status: ClassVar[int]


class InvalidRequest(ForetrainError):
    """The request contradicts itself or makes no sense."""

    exit_code = 2
    http_status = 422


class InvalidData(InvalidRequest):
    """A file that was handed in is malformed; says which file and which row."""

    def __init__(self, file: str, problem: str, row: int | None = None) -> None:
        where = file if row is None else f"{file}, row {row}"
        super().__init__(f"{where}: {problem}")
        self.file = file
        self.row = row


class UnknownName(ForetrainError):
    """An unknown name, with the nearest known ones."""

    exit_code = 2
    http_status = 404

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind = kind
        self.name = name
        self.near = nearest(name, known)
        sentence = f"no {kind} {name!r}"
        if self.near:
            sentence += f"; did you mean {' or '.join(self.near)}?"
        if hint:
            sentence += f"{'' if self.near else '.'} {hint}"
        super().__init__(sentence)


class MissingData(ForetrainError):
    """The question is fine, but a fact or file it needs is absent."""

    exit_code = 3
    http_status = 409


class BackendFailed(ForetrainError):
    """Something outside foretrain (a scheduler, a server, a command) failed."""

    exit_code = 4
    http_status = 502


def nearest(name: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The known names most like `name`: those containing it first, then by similarity of spelling."""
    wanted = name.casefold()
    by_key = {candidate.casefold(): candidate for candidate in sorted(known)}
    inside = [key for key in by_key if wanted and wanted in key]
    similar = difflib.get_close_matches(wanted, by_key, n=count, cutoff=0.6)
    ordered = dict.fromkeys([*inside, *similar])
    return tuple(by_key[key] for key in list(ordered)[:count])
