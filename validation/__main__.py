"""`python -m validation [--suite NAME] [--data DIR]`: run the accuracy suites and write their report.

A suite is a module `<name>_suite.py` in this folder with a function `run(data) -> SuiteReport`. The reports
go to `validation/reports/` and `docs/accuracy/`, the figures of this run to `validation/history.csv`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from dataclasses import replace
from pathlib import Path

import validation
from foretrain.encoding import to_json
from foretrain.errors import ForetrainError, MissingData, UnknownName
from validation.accuracy_page import write_report
from validation.history import remember
from validation.report import SuiteReport, markdown

ROOT = Path(__file__).parents[1]
SUFFIX = "_suite"


def suites() -> tuple[str, ...]:
    """Names of all suites."""
    modules = (module.name for module in pkgutil.iter_modules(validation.__path__))
    return tuple(sorted(name.removesuffix(SUFFIX) for name in modules if name.endswith(SUFFIX)))


def data_dir(chosen: Path | None) -> Path:
    """The folder of public measurements: as given, `FORETRAIN_DATA`, or beside the repository."""
    folder = chosen or Path(os.environ.get("FORETRAIN_DATA", ROOT.parent / "shared" / "datasets"))
    if not folder.is_dir():
        raise MissingData(f"no measurements in {folder}; name their folder with --data or FORETRAIN_DATA")
    return folder


def run(suite: str, data: Path) -> SuiteReport:
    """Run one suite, write its page and remember its figures."""
    module = importlib.import_module(f"validation.{suite}{SUFFIX}")
    report: SuiteReport = module.run(data)
    remember(suite, report)
    write_report(suite, report)
    return report


def main() -> None:
    """Run the suites asked for, or all."""
    parser = argparse.ArgumentParser(prog="validation", description=__doc__)
    parser.add_argument("--suite", action="append", help="one suite; may be repeated")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    os.environ.setdefault("FORETRAIN_HOME", str(ROOT / "build" / "validation"))
    try:
        data = data_dir(chosen.data)
        wanted = chosen.suite or suites()
        for suite in wanted:
            if suite not in suites():
                raise UnknownName("suite", suite, suites(), f"Suites: {', '.join(suites())}")
        reports = []
        for suite in wanted:
            try:
                reports.append(run(suite, data))
            except MissingData as error:  # root, say, or a tool: of no matter to the other suites
                if chosen.suite:
                    raise
                sys.stderr.write(f"{suite} is skipped: {error}\n")
                continue
            if not chosen.json:
                sys.stdout.write(markdown(reports[-1]) + "\n")
        if chosen.json:
            figures = [replace(report, cases=()) for report in reports]
            sys.stdout.write(to_json(figures) + "\n")
    except ForetrainError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
