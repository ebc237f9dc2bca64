"""Record the golden numbers anew: `python -m tests.golden.record [NAME...]`.

Without names, all requests. What changes is printed; nothing is printed for what stays within 1e-12.
Recorded numbers change only in a commit that names the defect it fixes (see README.md).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings

from tests.golden.recording import Answer, answer, differences, read_golden, report, requests, write_golden

SHOWN = 8


def record(names: tuple[str, ...]) -> int:
    """Record the named requests, or all, and print what changed; the number of changed requests."""
    listed = requests()
    unknown = sorted(set(names) - {request.name for request in listed})
    if unknown:
        raise SystemExit(f"requests.yaml has no {', '.join(unknown)}")
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
    with tempfile.TemporaryDirectory() as home:
        os.environ["FORETRAIN_HOME"] = home
        print(f"{record(tuple(sys.argv[1:]))} changed")  # noqa: T201 - a command prints
