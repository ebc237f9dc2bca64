"""Whether a message of an error says what would work: for the table of bad inputs and the fuzzer."""

from __future__ import annotations

import re

_NEAR = r"did you mean|such as|e\.g\.|as in |a model is|explain a|one node|it looks like"
_ALLOWED = (
    r"\bmust\b|one of|at least|at most|numbered|either|not both|go together|compares|can be|without .*:"
)
_KNOWN = r"list them|(known|timings|stored|views|conditions|layers|orders|options):|links (inside|between)"
_FILES = r"columns?\b|the header|in its folder|in place of"
_TO_DO = (
    r"\b(write|give|add|keep|leave|use|choose|check|set|install|make it|save it|export it|end the name)\b"
)
_NEEDED = r"\bname (a|an|each|the|one|more)\b|\bneeds?\b|requires?|the least|\bis for\b|return \("
_WHERE = r"foretrain [a-z-]+|is not a multiple|is not Python|failed: "
"""The help or a command to look at; or what is wrong in the code or configuration of the user."""
_WORKS = re.compile("|".join((_NEAR, _ALLOWED, _KNOWN, _FILES, _TO_DO, _NEEDED, _WHERE)), re.IGNORECASE)


def says_what_works(message: str) -> bool:
    """Whether a message has a known value, a range, an example, a near name or what to do."""
    return _WORKS.search(message) is not None
