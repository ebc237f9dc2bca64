"""What a job runs: a command with places to fill in, or the training of a zoo model."""

from __future__ import annotations

import shlex
import string
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from foretrain.errors import InvalidRequest

FIELDS = {
    "gpus": "GPUs on each node",
    "nodes": "nodes of the job",
    "node_type": "type of these nodes",
    "devices": "numbers of the GPUs on a node, separated by commas",
    "checkpoint": "path for the job's checkpoints, the same in each attempt",
    "progress": "path of the file in which the job reports its progress",
    "job": "name of the job",
    "attempt": "number of the attempt, from 1",
    "python": "the Python that runs foretrain",
}
"""What may stand in braces in a command."""


@dataclass(frozen=True)
class JobCommand:
    """A command line with fields in braces, where it runs, and variables of its environment.

    `reports` states that it writes its progress; `retries` of failures without progress are allowed.
    """

    template: str
    directory: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    reports: bool = False

    def __post_init__(self) -> None:
        try:
            words = shlex.split(self.template)
            named = [name for word in words for _, name, _, _ in string.Formatter().parse(word)]
        except ValueError as error:
            raise InvalidRequest(f"command {self.template!r} cannot be read: {error}") from error
        if not words:
            raise InvalidRequest("the command is empty; write what the job runs")
        unknown = [name for name in named if name is not None and name not in FIELDS]
        if unknown:
            raise InvalidRequest(
                f"command {self.template!r} has the unknown field {{{unknown[0]}}}; there are "
                + ", ".join(f"{{{name}}}" for name in FIELDS)
            )

    def filled(self, values: Mapping[str, object]) -> list[str]:
        """The words of the command; a value never becomes several words."""
        return [word.format_map({"python": sys.executable, **values}) for word in shlex.split(self.template)]


def zoo_training(
    model: str,
    steps: int,
    batch: int | None = None,
    seq_len: int | None = None,
    image_size: int | None = None,
    checkpoint_seconds: float = 10.0,
) -> JobCommand:
    """Train a zoo model on CPUs, one thread for each GPU, with checkpoints and a report of progress."""
    if steps < 1:
        raise InvalidRequest(f"a training of {steps} steps is none; give at least 1")
    sizes = {"batch": batch, "seq-len": seq_len, "image-size": image_size}
    given = "".join(f" --{name} {value}" for name, value in sizes.items() if value is not None)
    return JobCommand(
        "{python} -m foretrain.backends.trainer "
        f"{shlex.quote(model)} --steps {steps}{given} --checkpoint-seconds {checkpoint_seconds:g} "
        "--threads {gpus} --checkpoint {checkpoint} --progress {progress}",
        reports=True,
    )
