"""Generated command lines and files: no traceback, no hang, and every message says what would work.

    python scripts/fuzz.py --cases 20000 --seed 0

Commands, options and their types come from the command line itself, so a new option is covered at once. A
case mixes valid values with values at and beyond the bounds, nonsense (`fuzz.toml`), and files that are
mutated copies of valid ones: configurations of Hugging Face models, job, cluster and workload files, tables,
logs, traces, `.pt2`, calibrations. It runs in this process, under an alarm. Findings are:

    traceback   an exception that is no error of foretrain
    hang        a case that takes more processor time than the alarm allows, or waits three times as long
    no hint     an error that does not say what would work (`tests/support/messages.py`)
    exit code   one that is not documented (docs/errors.md)
    output      JSON that cannot be read, an error on stdout, a warning on stderr

A case depends on the seed and its own number alone: `--only 4711` runs it again. Exits with 1 if there are
findings. Options that time this machine or train for long are left out (`LEFT_OUT`).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.support.messages import says_what_works  # noqa: E402 - after the path is set

LEFT_OUT = {"here", "measure_here", "layouts", "philly", "timeline", "join"}
"""Options that time this machine, take minutes by design, or wait for other machines."""
ALWAYS = {
    "campaign": ["--dry-run"],
    "plan": ["--gpu", "t4", "--max-gpus", "2"],
    "predict": ["--no-advice"],
    "simulate": ["--no-bound"],
    "guide": ["--on", "t4"],
    "learn": ["--no-gray-box", "--technique", "linear"],
}
"""Options that keep a command quick; given unless the case gives them itself."""
WEIGHTS = {"predict": 8, "plan": 3, "calibrate": 3, "converge": 3, "run": 0.3, "learn resources": 0.3}
VALID = (0.6, 0.85, 0.97)
"""Shares of valid values, of which a case has one: some fail at once, some get far."""
WAITING = 3.0
CODES = {0, 1, 2, 3, 4, 126, 127}


class Hang(BaseException):
    """The alarm of a case; not an `Exception`, so that no handler takes it for an error."""


@dataclass(frozen=True)
class Finding:
    """What is wrong with a case."""

    case: int
    kind: str
    line: str
    detail: str


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    line: str
    command: str
    code: int | None
    seconds: float
    findings: tuple[Finding, ...]


# ---------------------------------------------------------------- values

TABLES: dict[str, Any] = tomllib.loads((ROOT / "scripts" / "fuzz.toml").read_text(encoding="utf-8"))
FILES: dict[str, str] = TABLES["files"]
PIECES: tuple[str, ...] = tuple(TABLES["mutations"]["pieces"])
READ = ("FILE", "LOG", "TIMINGS", "TABLE", "JOBS", "FOLDER")
"""How options that read a file or folder are written."""


def value_of(option: Any, share: float, rng: random.Random) -> list[str]:
    """One value of an option, valid with the probability `share`; several where it takes a list."""
    valid = rng.random() < share
    if option.kind.many and rng.random() < 0.3:
        return [_one(option, valid, rng) for _ in range(rng.randint(1, 3))]
    return [_one(option, valid, rng)]


def _one(option: Any, valid: bool, rng: random.Random) -> str:
    return str(rng.choice(_candidates(option, valid, rng)))


def _candidates(option: Any, valid: bool, rng: random.Random) -> Any:
    """What a value is drawn from."""
    kind, name = option.kind, option.name
    types, place = TABLES["by_type"], 0 if valid else 1
    if kind.choices:
        return kind.choices if valid else types["other"][1]
    if not valid and rng.random() < 0.25:
        return types["other"][1]
    if name in TABLES["written"]:
        return TABLES["written"][name][place]
    if kind.metavar == "FILE" or option.metavar in READ:
        wrong = ("no.csv", ".", "", "binary.csv", "empty.csv", rng.choice(sorted(FILES)))
        return TABLES["files_of"].get(name, ["jobs.csv"]) if valid else wrong
    if name in TABLES["by_name"]:
        return TABLES["by_name"][name][place]
    form = {"models": "MODEL", "workload": "MODEL", "model": "MODEL", "on": "HARDWARE"}.get(
        name, kind.metavar
    )
    return types.get(form, types["other"])[place]


# ---------------------------------------------------------------- files


def mutated(text: str, rng: random.Random) -> bytes:
    """A copy of a file with one to four changes; in a third of the cases the file as it is."""
    if rng.random() < 0.35:
        return text.encode("utf-8", "surrogateescape")
    for _ in range(rng.randint(1, 4)):
        text = rng.choice(_MUTATIONS)(text, rng)
    raw = text.encode("utf-8", "replace")
    if rng.random() < 0.05:
        raw = raw[: len(raw) // 2] + b"\xff\xfe\x00" + raw[len(raw) // 2 :]
    return raw


def _value_replaced(text: str, rng: random.Random) -> str:
    """A number or word replaced."""
    found = list(re.finditer(r"-?\d+(\.\d+)?|[A-Za-z_][\w-]*", text))
    if not found:
        return text
    one = rng.choice(found)
    return text[: one.start()] + rng.choice(PIECES) + text[one.end() :]


def _truncated(text: str, rng: random.Random) -> str:
    return text[: rng.randint(0, len(text))]


def _line_changed(text: str, rng: random.Random) -> str:
    """A line left out, repeated, or moved to the end."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    place = rng.randrange(len(lines))
    line = lines.pop(place)
    return "".join(rng.choice((lines, [*lines, line], [line, line, *lines])))


def _inserted(text: str, rng: random.Random) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(PIECES) + text[place:]


_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    _value_replaced,
    _value_replaced,
    _truncated,
    _line_changed,
    _inserted,
)


def write_files(folder: Path, rng: random.Random, line: str) -> None:
    """The files that a command line names, each perhaps mutated."""
    for name, text in FILES.items():
        if name in line:
            (folder / name).write_bytes(mutated(text, rng))
    if "history" in line:
        (folder / "history").mkdir(exist_ok=True)
        (folder / "history" / "loss.csv").write_bytes(mutated(FILES["loss.csv"], rng))
    if "job.yaml" in line or "config.json" in line:
        (folder / "config.json").write_bytes(mutated(FILES["config.json"], rng))


# ---------------------------------------------------------------- command lines


def commands() -> dict[str, Any]:
    """Every command by its words, as the command line declares it."""
    import click

    from foretrain.serving.cli.app import SUMMARIES, app
    from foretrain.serving.cli.frame import FamilyGroup

    context = click.Context(app)
    found: dict[str, Any] = {}
    for name in SUMMARIES:
        command: Any = app.get_command(context, name)
        if isinstance(command, FamilyGroup):
            subcommands: dict[str, Any] = dict(command.commands)
            found |= {f"{name} {word}": each.declared for word, each in subcommands.items()}
            if command.default is not None:
                found[name] = command.default.declared
        else:
            found[name] = command.declared
    return found


def command_line(rng: random.Random, known: dict[str, Any]) -> tuple[str, list[str]]:
    """A command and its arguments."""
    from foretrain.decoding import options
    from foretrain.serving.cli.frame import spellings

    share = rng.choice(VALID)
    names = sorted(known)
    name = rng.choices(names, [WEIGHTS.get(each, 1.0) for each in names])[0]
    declared = known[name]
    every = (*options(declared.request), *options(declared.output))
    every = tuple(each for each in every if each.name not in LEFT_OUT)
    positional, words = [], []
    for each in every:
        if each.positional:
            if rng.random() < 0.95:
                count = 2 if name == "pair" else 1
                positional += [word for _ in range(count) for word in value_of(each, share, rng)]
        elif rng.random() < (0.9 if each.is_required else min(0.3, 3 / len(every))):
            flag = rng.choice(spellings(declared, each))
            if each.kind.is_switch:
                words.append(flag)
            else:
                words += [word for value in value_of(each, share, rng) for word in (flag, value)]
    given = set(words)
    kept = ALWAYS.get(name, [])
    if kept and kept[0] not in given:
        words += kept
    if rng.random() < 0.02:
        words.append(rng.choice(("--nothing", "-x", "--", "extra", "--batc=3")))
    ordered = [*words, "--", *positional] if declared.request.WRAPS else [*positional, *words]
    return name, [*name.split(), *(word.replace("\x00", "") for word in ordered)]


# ---------------------------------------------------------------- running


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises `Hang` after `seconds` of processor time, which a busy machine does not stretch.

    A case that waits instead of computing ends after `WAITING` times as long on the clock.
    """

    def ring(*_: Any) -> None:
        raise Hang

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, WAITING * seconds),
    )
    before = [signal.signal(number, ring) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def run_case(case: int, seed: int, known: dict[str, Any], base: Path, limit: float) -> Outcome:
    """One case in a folder of its own."""
    from foretrain.serving.cli import main

    rng = random.Random(f"{seed}:{case}")
    name, arguments = command_line(rng, known)
    line = shlex.join(["foretrain", *arguments])
    folder = base / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_files(folder, rng, line)
    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    code, problem, detail = None, "", ""
    start = time.perf_counter()
    try:
        with alarm(limit), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(arguments)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    except Hang:
        problem, detail = "hang", f"over {limit:g} s"
    except BaseException:  # noqa: BLE001 - whatever it is, it is a finding
        problem, detail = "traceback", traceback.format_exc()
    seconds = time.perf_counter() - start
    os.chdir(base)
    _forget(base / "home")
    printed = _Printed(name, line, arguments, code, out.getvalue(), " ".join(err.getvalue().split()))
    found = [Finding(case, problem, line, detail)] if problem else list(_findings(case, printed))
    return Outcome(line, name, code, seconds, tuple(found))


@dataclass(frozen=True)
class _Printed:
    """What a command printed, and how it ended."""

    name: str
    line: str
    arguments: Sequence[str]
    code: int | None
    out: str
    message: str


def _findings(case: int, printed: _Printed) -> Iterator[Finding]:
    """What is wrong with what a command printed; `measure` passes on what the command of the user does."""
    out, message = printed.out, printed.message
    if printed.code not in CODES:
        yield Finding(case, "exit code", printed.line, f"{printed.code}: {message}")
    if printed.name == "measure":
        return
    if printed.code in (2, 3, 4):
        if not message.startswith("error: ") or not says_what_works(message):
            yield Finding(case, "no hint", printed.line, message)
        if out.strip():
            yield Finding(case, "output", printed.line, f"an error, and on stdout: {out[:200]}")
    if "Warning" in message:
        yield Finding(case, "output", printed.line, f"a warning: {message[:400]}")
    if printed.code == 0 and "--json" in printed.arguments:
        try:
            json.loads(out, parse_constant=_no_number)
        except ValueError as error:
            yield Finding(case, "output", printed.line, f"not JSON ({error}): {out[:200]}")


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _forget(home: Path) -> None:
    """What a case stored must not change the next one."""
    for name in ("measurements.json", "offers.csv", "runs.sqlite", "calibrations", "running", "devices"):
        path = home / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def fuzz(cases: Sequence[int], seed: int, limit: float, progress: Callable[[str], None]) -> list[Outcome]:
    """All cases in order."""
    warnings.simplefilter("default")
    before, variables = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="foretrain-fuzz-") as place:
        base = Path(place)
        os.environ["FORETRAIN_HOME"] = str(base / "home")
        (base / "home").mkdir()
        known = commands()
        outcomes = []
        try:
            for count, case in enumerate(cases, 1):
                outcomes.append(run_case(case, seed, known, base, limit))
                if count % 200 == 0:
                    progress(f"{count:,} cases, {sum(len(each.findings) for each in outcomes)} findings")
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(variables)
    return outcomes


def report(outcomes: Sequence[Outcome], seed: int, seconds: float) -> str:
    """Figures, the slowest cases, and the findings, equal ones once."""
    codes = collections.Counter(each.code for each in outcomes)
    slow = sorted(outcomes, key=lambda each: -each.seconds)[:5]
    findings = [finding for each in outcomes for finding in each.findings]
    lines = [
        f"{len(outcomes):,} cases, seed {seed}, {seconds:,.0f} s; exit codes: "
        + ", ".join(f"{code}: {count:,}" for code, count in sorted(codes.items(), key=str)),
        "slowest: " + "; ".join(f"{each.seconds:.1f} s {each.line[:110]}" for each in slow),
        f"findings: {len(findings)}",
    ]
    seen: set[tuple[str, str]] = set()
    for each in findings:
        last = each.detail.strip().splitlines()[-1] if each.detail.strip() else ""
        key = (each.kind, last[:60])
        if key not in seen:
            seen.add(key)
            lines.append(f"\n[{each.kind}] --seed {seed} --only {each.case}\n  {each.line}\n  {each.detail}")
    return "\n".join(lines)


def _say(stream: TextIO, text: str) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases and print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--only", type=int, help="run this case alone")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds of processor time of a case")
    given = parser.parse_args(arguments)
    cases = [given.only] if given.only is not None else range(given.first, given.first + given.cases)
    start = time.perf_counter()
    outcomes = fuzz(cases, given.seed, given.limit, lambda text: _say(sys.stderr, text))
    _say(sys.stdout, report(outcomes, given.seed, time.perf_counter() - start))
    return 1 if any(each.findings for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
