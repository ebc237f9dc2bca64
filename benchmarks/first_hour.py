"""The first hour of a new user: 60 commands as they are typed, mistakes included, each a fresh process.

python -m benchmarks.first_hour             run them; print seconds and exit codes, the total, the slowest
python -m benchmarks.first_hour predict     those that contain this text

A command that ends with another exit code than first_hour.txt states is a failure.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import Benchmark, Failed, Target, register

COMMANDS = Path(__file__).with_suffix(".txt")
ROOT = Path(__file__).resolve().parent.parent
_SLOWEST = 5
_TARGET_SECONDS_PER_COMMAND = 2.0
"""On average: an answer should come while the question is still in mind."""


@dataclass(frozen=True)
class TypedCommand:
    """A line that a user types after `foretrain`, and the exit code it must have."""

    line: str
    exit_code: int

    def words(self, folder: Path) -> list[str]:
        """Its words, with the folder of the hour and the running Python in their places."""
        places = {"PYTHON": sys.executable}
        words = (places.get(word, word) for word in shlex.split(self.line))
        return [word.replace("OUT/", f"{folder}/") for word in words]


@dataclass(frozen=True)
class TypedResult:
    """What a command did: its exit code, wall clock, and what it wrote to stdout and stderr."""

    command: TypedCommand
    exit_code: int
    seconds: float
    output: str
    errors: str

    @property
    def is_as_expected(self) -> bool:
        """The stated exit code, and no traceback on the way."""
        return self.exit_code == self.command.exit_code and "Traceback" not in self.errors

    @property
    def row(self) -> str:
        """A line of the table."""
        verdict = "" if self.is_as_expected else f"  EXPECTED {self.command.exit_code}: {_last(self.errors)}"
        return f"{self.seconds:7.2f} s  {self.exit_code}  foretrain {self.command.line}{verdict}"


def typed_commands() -> tuple[TypedCommand, ...]:
    """The commands of the hour, in order."""
    lines = (line.strip() for line in COMMANDS.read_text(encoding="utf-8").splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return tuple(TypedCommand(line, int(code)) for code, line in pairs)


def run_hour(commands: Sequence[TypedCommand]) -> Iterator[TypedResult]:
    """Run commands one after another in one empty data directory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = os.environ | {"FORETRAIN_HOME": str(folder / "home"), "COLUMNS": "100"}
        for command in commands:
            start = time.perf_counter()
            ended = subprocess.run(
                [sys.executable, "-m", "foretrain", *command.words(folder)],
                capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
            )  # fmt: skip
            seconds = time.perf_counter() - start
            yield TypedResult(command, ended.returncode, seconds, ended.stdout, ended.stderr)


def print_hour(commands: Sequence[TypedCommand]) -> list[TypedResult]:
    """Run commands and print a row of each, the total and the slowest; returns those that ended otherwise."""
    results = []
    for result in run_hour(commands):
        print(result.row, flush=True)
        results.append(result)
    print(summary(results), flush=True)
    return [result for result in results if not result.is_as_expected]


def _whole_hour() -> None:
    wrong = print_hour(typed_commands())
    if wrong:
        raise Failed("; ".join(result.row for result in wrong))


def summary(results: Sequence[TypedResult]) -> str:
    """The total, and the slowest commands."""
    slowest = sorted(results, key=lambda result: -result.seconds)[:_SLOWEST]
    named = ", ".join(f"{result.seconds:.1f} s {result.command.line}" for result in slowest)
    total = sum(result.seconds for result in results)
    return f"{len(results)} commands in {total:.0f} s; slowest: {named}"


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


register(
    Benchmark(
        "a first hour of 60 commands",
        Target(_TARGET_SECONDS_PER_COMMAND * len(typed_commands())),
        1,
        _whole_hour,
        warms_up=False,
    )
)


def main() -> int:
    """Run the commands asked for; exit 1 where one ends otherwise than stated."""
    wanted = sys.argv[1:] or [""]
    chosen = [each for each in typed_commands() if any(text in each.line for text in wanted)]
    return 1 if print_hour(chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
