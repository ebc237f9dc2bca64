"""List the foretrain modules that a command walks through, in the order they are entered.

    python scripts/walk.py predict resnet50 --on rtx3090 --batch 192
    python scripts/walk.py --python 'ft.predict("resnet50", on="rtx3090", batch=192)'
    python scripts/walk.py --count predict resnet50 --on rtx3090 --batch 192

A module counts if at least one of its functions runs; importing it does not. The command runs in a fresh
interpreter with an empty data directory, once to fill the cache of traced graphs and once to be observed, so
that the list does not contain the tracing of the model. `--cold` observes the first run instead.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

SOURCES = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "foretrain"
_FUNCTION_FLAGS = 0x03
"""CO_OPTIMIZED and CO_NEWLOCALS: set in functions, not in the bodies of modules and classes."""


def main() -> None:
    """Run the command, or observe it when started by ourselves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", metavar="EXPRESSION", help="a Python expression; `ft` is foretrain")
    parser.add_argument("--count", action="store_true", help="print only the number of modules")
    parser.add_argument("--json", action="store_true", help="print JSON: functions by module")
    parser.add_argument("--cold", action="store_true", help="observe the first run, tracing included")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command of foretrain")
    chosen = parser.parse_args()
    if not chosen.python and not chosen.command:
        parser.error("give a command, or --python EXPRESSION")
    with tempfile.TemporaryDirectory() as home:
        if not chosen.cold:
            walk(chosen.command, chosen.python, Path(home))
        functions = walk(chosen.command, chosen.python, Path(home))
    if chosen.count or chosen.json:
        sys.stdout.write(f"{json.dumps(functions) if chosen.json else len(functions)}\n")
        return
    width = max(map(len, functions), default=0)
    sys.stdout.writelines(
        f"{name:{width}}  {count} function{'s' if count > 1 else ''}\n" for name, count in functions.items()
    )
    sys.stdout.write(f"{len(functions)} modules\n")


def walk(command: list[str], expression: str | None, home: Path) -> dict[str, int]:
    """The modules a command or expression enters, in order, with the number of their functions that run."""
    report = home / "walk.json"
    environment = {**os.environ, "FORETRAIN_HOME": str(home), "PYTHONPATH": str(SOURCES)}
    observed = [sys.executable, str(Path(__file__).resolve()), *command]
    if expression:
        observed = [*observed[:2], expression]
        environment["FORETRAIN_WALK_IS_PYTHON"] = "1"
    environment["FORETRAIN_WALK_REPORT"] = str(report)
    finished = subprocess.run(observed, env=environment, capture_output=True, text=True, check=False)
    if not report.exists():
        sys.exit(f"the command failed:\n{finished.stdout}{finished.stderr}")
    entered: dict[str, int] = json.loads(report.read_text())
    return entered


def observe(report: Path, arguments: list[str], is_python: bool) -> None:
    """Run a command in this process, and write down which modules it enters."""
    entered: dict[CodeType, None] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        is_import = caller is not None and caller.f_code.co_name == "<module>"  # a constant is computed
        if event == "call" and not is_import:
            entered.setdefault(frame.f_code)

    sys.argv = [PACKAGE, *arguments]
    sys.setprofile(profile)
    try:
        if is_python:
            import foretrain

            eval(arguments[0], {"ft": foretrain})
        else:
            from foretrain.serving.cli import main as run

            run()
    finally:
        sys.setprofile(None)
        report.write_text(json.dumps(_modules(entered)))


def _modules(entered: dict[CodeType, None]) -> dict[str, int]:
    """The entered functions by module, in order; lambdas and comprehensions count with their module."""
    names = (_module(Path(code.co_filename)) for code in entered if code.co_flags & _FUNCTION_FLAGS)
    return dict(Counter(name for name in names if name))


def _module(file: Path) -> str:
    """The name of a module of the package; nothing for another file."""
    package = SOURCES / PACKAGE
    if not file.is_relative_to(package):
        return ""
    parts = (PACKAGE, *file.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


if __name__ == "__main__":
    _report = os.environ.pop("FORETRAIN_WALK_REPORT", "")
    if _report:
        observe(Path(_report), sys.argv[1:], bool(os.environ.pop("FORETRAIN_WALK_IS_PYTHON", "")))
    else:
        main()
