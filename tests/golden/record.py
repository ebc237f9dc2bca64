"""Record the golden numbers anew: `python -m tests.golden.record [--json FOLDER] [NAME...]`.

Without names, all requests. What changes is printed; nothing is printed for what stays within 1e-12.
Recorded numbers change only in a commit that names the defect it fixes (see README.md).
With `--json` nothing is recorded: what each request prints is written into the folder, to compare bytes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from pathlib import Path

from tests.golden.recording import (
    Answer,
    Request,
    answer,
    differences,
    printed_json,
    read_golden,
    report,
    requests,
    write_golden,
)

SHOWN = 8


def write_json(folder: Path, names: list[str]) -> int:
    """Write what the named requests, or all, print into a folder; the number of files."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [request for request in _listed(names) if not names or request.name in names]
    for request in chosen:
        exit_code, text = printed_json(request)
        (folder / f"{request.name}.json").write_text(text or f"exit code {exit_code}\n", "utf-8")
    return len(chosen)


def record(names: list[str]) -> int:
    """Record the named requests, or all, and print what changed; the number of changed requests."""
    listed = _listed(names)
    changed = 0
    for group in dict.fromkeys(request.group for request in listed):
        golden = read_golden(group)
        answers: dict[str, Answer] = {}
        for request in (each for each in listed if each.group == group):
            if names and request.name not in names:
                if request.name in golden:
                    answers[request.name] = golden[request.name]
                continue
            start = time.perf_counter()
            answers[request.name] = answer(request)
            seconds = time.perf_counter() - start
            changed += _report(request.name, golden.get(request.name), answers[request.name], seconds)
        write_golden(group, answers)
    return changed


def _listed(names: list[str]) -> tuple[Request, ...]:
    listed = requests()
    unknown = sorted(set(names) - {request.name for request in listed})
    if unknown:
        raise SystemExit(f"requests.yaml has no {', '.join(unknown)}")
    return listed


def _report(name: str, golden: Answer | None, now: Answer, seconds: float) -> bool:
    keys = len(now.numbers) + len(now.advice)
    summary = f"{name}: exit {now.exit_code}, {keys} keys, {seconds:.1f} s"
    if golden is None:
        print(f"new       {summary}")  # noqa: T201 - a command prints
        return True
    found = differences(golden, now, 1e-12)
    print(f"{'changed  ' if found else 'unchanged'} {summary}")  # noqa: T201 - a command prints
    for line in report(found, SHOWN):
        print(f"    {line}")  # noqa: T201 - a command prints
    return bool(found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="write what is printed, record nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="requests; all if none is named")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home
        if given.json:
            print(f"{write_json(given.json, given.names)} files")  # noqa: T201 - a command prints
        else:
            print(f"{record(given.names)} changed")  # noqa: T201 - a command prints
