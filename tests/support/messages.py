"""Whether a message of an error says what would work: for the table of bad inputs and the fuzzer."""

from __future__ import annotations

import re

_WORKS = re.compile(
    "|".join(
        (
            r"did you mean|such as|e\.g\.|as in |a model is|explain a|one node|it looks like|given as",
            r"\bmust\b|one of|at least|at most|numbered|either|not both|go together|compares|can be|uses all",
            r"list them|known are|(known|timings|stored|views|conditions|layers|orders|options):|without .*:",
            r"links (inside|between)|known form|defines|in its folder|in place of|columns?\b|the header",
            r"is not (text|a CSV)|not (JSON|YAML)|key: value",
            r"\b(write|give|add|keep|leave|use|choose|check|set|install|make it|save it|end the name)\b",
            r"\bexport (it|the)|\bname (a|an|each|the|one|more)\b|\bneeds?\b|requires?|return \(",
            r"minimal example|\b(is|are) for\b|foretrain [a-z-]+|is not a multiple|is not Python|failed: ",
        )
    ),
    re.IGNORECASE,
)


def says_what_works(message: str) -> bool:
    """Whether a message has a known value, a range, an example, a near name or what to do."""
    return _WORKS.search(message) is not None
