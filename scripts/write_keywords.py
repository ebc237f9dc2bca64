"""Write `serving/keywords.py`: the keywords of the Python verbs, for type checkers and editors.

    python scripts/write_keywords.py

Each noun that requests are composed of becomes a `TypedDict` with the same bases, each option a key with the
type that Python callers may pass and its help as documentation.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from foretrain.decoding import Option, options
from foretrain.serving import python
from foretrain.serving.requests.base import Request

FILE = Path(python.__file__).with_name("keywords.py")
WIDTH = 106
HEADER = '''"""The keywords of the Python verbs, as type checkers and editors read them.

Written by `scripts/write_keywords.py` from the requests, whose options are declared on the nouns of the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict
'''


def keywords_text() -> str:
    """The text of the module."""
    text = "".join([HEADER, *map(_typed_dict, _nouns())])
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"],
        input=text, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return formatted.stdout


def _nouns() -> list[type]:
    """The requests of the verbs and all they are composed of, each after its bases."""
    found: dict[type, None] = {}

    def add(noun: type) -> None:
        for base in _bases(noun):
            add(base)
        found[noun] = None

    for request in python.VERBS.values():
        add(request)
    return list(found)


def _bases(noun: type) -> list[type]:
    return [base for base in noun.__bases__ if base not in (object, Request) and _keys(base)]


def _parameters(verb: str) -> set[str]:
    """The parameters that a verb declares itself."""
    code = getattr(python, verb).__code__
    return set(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _keys(noun: type) -> list[Option]:
    """The options of a noun, but for those that a verb which takes it has as a parameter of its own.

    A request gets them back where its own verb has no such parameter.
    """
    verbs = [
        verb
        for verb, request in python.VERBS.items()
        if (request is noun if issubclass(noun, Request) else issubclass(request, noun))
    ]
    refused = set().union(*map(_parameters, verbs))
    return [each for each in options(noun) if not each.positional and each.name not in refused]


def _typed_dict(noun: type) -> str:
    bases = [f"{base.__name__}Keywords" for base in _bases(noun)] or ["TypedDict"]
    inherited = {each.name for base in _bases(noun) for each in _keys(base)}
    summary = (noun.__doc__ or noun.__name__).strip().splitlines()[0]
    lines = [
        f"\n\nclass {noun.__name__}Keywords({', '.join(bases)}, total=False):",
        f'    """{summary}"""',
        "",
    ]
    for each in _keys(noun):
        if each.name not in inherited:
            text = textwrap.wrap(f'"""{each.text}"""', WIDTH, break_on_hyphens=False)
            lines += [f"    {each.name}: {each.python}", *(f"    {line}" for line in text)]
    return "\n".join(lines) + "\n" if _keys(noun) or issubclass(noun, Request) else ""


if __name__ == "__main__":
    FILE.write_text(keywords_text(), encoding="utf-8")
