"""What the requests of all verbs have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Request:
    """Base of all requests: the nouns of the core that a verb needs, composed by inheritance.

    `VERB` is the command, `COMMON` lists the options its help shows first.
    """

    VERB: ClassVar[str]
    COMMON: ClassVar[tuple[str, ...]] = ()
    TAKES_WORKLOAD_FILE: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check nothing: each noun checks itself when the core takes it (`decoding.part`).

        What one of them refuses may depend on files and facts that a request does not read.
        """
