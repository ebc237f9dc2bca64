"""Reject words that are not standard technical English: `python scripts/check_words.py [PATH...]`.

`words.toml` lists the words, the advice and the files to scan. `words_baseline.txt`, where it exists, holds
the number of hits each file may still have; the sum may fall, never rise.

    python scripts/check_words.py                     # what `make lint` runs
    python scripts/check_words.py src/foretrain/facts # every hit in these files, whatever the baseline allows
    python scripts/check_words.py --update-baseline   # write the present counts, if their sum is no larger
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, cached_property
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent
ROOT = SCRIPTS.parent
WORDS = SCRIPTS / "words.toml"
BASELINE = SCRIPTS / "words_baseline.txt"

_CAPITALISED = re.compile(r"[A-Z](?=[a-z])")
_STRING_OR_COMMENT = re.compile(
    r"""(?sx) "{3}.*?"{3} | '{3}.*?'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \#[^\n]*"""
)
_LINE_BREAK = r"[^\S\n]*(?:\n\s*(?:\#:?[^\S\n]*|//[^\S\n]*|>[^\S\n]*)?|[^\S\n])[^\S\n]*"


@dataclass(frozen=True)
class Word:
    """A pattern to reject, the advice to print and where the pattern applies."""

    pattern: str
    use: str
    names_only: bool = False
    only: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The pattern up to the end of a word, in lower case; a space matches a line break."""
        return re.compile(rf"(?:{self.pattern.replace(' ', _LINE_BREAK)})(?![a-z])")

    def applies_to(self, path: str) -> bool:
        """Whether files at this path, relative to the repository, are checked for the word."""
        return (not self.only or _matches(path, self.only)) and not _matches(path, self.allow)


@dataclass(frozen=True)
class WordList:
    """The contents of words.toml."""

    words: tuple[Word, ...]
    scan: tuple[str, ...]
    skip: tuple[str, ...]

    def files(self, root: Path) -> list[str]:
        """The files to check, relative to `root`, sorted."""
        listed = {
            file.relative_to(root).as_posix()
            for pattern in self.scan
            for file in root.glob(pattern)
            if file.is_file()
        }
        return sorted(path for path in listed if not _matches(path, self.skip))


@dataclass(frozen=True)
class Hit:
    """A rejected word in a file."""

    path: str
    line: int
    text: str
    use: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text} -> use {self.use}"


def read_words(file: Path = WORDS) -> WordList:
    """Read words.toml."""
    content = tomllib.loads(file.read_text("utf-8"))
    words = (
        *(_word(entry, names_only=False) for entry in content.get("phrase", ())),
        *(_word(entry, names_only=True) for entry in content.get("name", ())),
    )
    return WordList(words, tuple(content["scan"]), tuple(content.get("skip", ())))


def check_text(text: str, path: str, words: Iterable[Word]) -> list[Hit]:
    """All hits in one file, in the order of the lines."""
    prose = _split_identifiers(text)
    code = _split_identifiers(_STRING_OR_COMMENT.sub(_newlines, text)) if path.endswith(".py") else ""
    hits = [
        Hit(path, searched.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), word.use)
        for word in words
        if word.applies_to(path)
        for searched in (code if word.names_only else prose,)
        for match in word.regex.finditer(searched)
        if not searched[match.start() - 1 : match.start()].isalpha()
    ]
    return sorted(hits, key=lambda hit: hit.line)


def read_baseline(file: Path = BASELINE) -> dict[str, int]:
    """The hits each file may still have; none without a baseline."""
    if not file.exists():
        return {}
    lines = (line.split() for line in file.read_text("utf-8").splitlines() if not line.startswith("#"))
    return {path: int(count) for count, path in lines}


def baseline_text(counts: Mapping[str, int]) -> str:
    """The baseline file for these counts."""
    head = "# Hits of scripts/check_words.py that remain in each file. The sum may fall, never rise.\n"
    return head + "".join(f"{counts[path]} {path}\n" for path in sorted(counts) if counts[path])


def excess(hits: Iterable[Hit], baseline: Mapping[str, int]) -> list[Hit]:
    """The hits of the files that have more of them than the baseline allows."""
    listed = list(hits)
    counts = Counter(hit.path for hit in listed)
    return [hit for hit in listed if counts[hit.path] > baseline.get(hit.path, 0)]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Check the files; the exit code is 1 if there are more hits than the baseline allows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="report every hit below these paths")
    parser.add_argument("--update-baseline", action="store_true", help="write the present counts and exit")
    options = parser.parse_args(arguments)
    words = read_words()
    hits = list(_hits(words, root))
    baseline_file = root / BASELINE.relative_to(ROOT)
    baseline = read_baseline(baseline_file)
    if options.update_baseline:
        if baseline_file.exists() and len(hits) > sum(baseline.values()):
            sys.stdout.write(f"{len(hits)} hits, but the baseline allows {sum(baseline.values())}\n")
            return 1
        baseline_file.write_text(baseline_text(Counter(hit.path for hit in hits)), "utf-8")
        return 0
    if options.paths:
        prefixes = tuple(_relative(path, root) for path in options.paths)
        shown = [hit for hit in hits if any(Path(hit.path).is_relative_to(prefix) for prefix in prefixes)]
    else:
        shown = excess(hits, baseline)
    sys.stdout.writelines(f"{hit}\n" for hit in shown)
    if shown:
        files = len({hit.path for hit in shown})
        sys.stdout.write(f"{len(shown)} words in {files} files are not plain technical English (STYLE.md)\n")
    return 1 if shown else 0


def _hits(words: WordList, root: Path) -> Iterator[Hit]:
    for path in words.files(root):
        yield from check_text((root / path).read_text("utf-8"), path, words.words)


def _word(entry: Mapping[str, Any], *, names_only: bool) -> Word:
    return Word(
        entry["pattern"],
        entry["use"],
        names_only,
        tuple(entry.get("only", ())),
        tuple(entry.get("allow", ())),
    )


def _split_identifiers(text: str) -> str:
    """Write `step_time` and `StepTime` as `step time`; line breaks stay where they are.

    Words start where a letter follows what is no letter; a regular expression that begins with a boundary is
    several times slower than one that begins with a letter, so `check_text` tests the start of a match.
    """
    return _CAPITALISED.sub(r" \g<0>", text).replace("_", " ").lower()


def _newlines(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(_glob(pattern).match(path) for pattern in patterns)


@cache
def _glob(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression; `*` also matches slashes."""
    return re.compile(translate(pattern))


def _relative(path: str, root: Path) -> str:
    return Path(path).resolve().relative_to(root).as_posix()


if __name__ == "__main__":
    sys.exit(main())
