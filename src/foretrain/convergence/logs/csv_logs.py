"""Logs as CSV: rows of steps, and what Keras writes.

CSV with a step (or epoch) column and metric columns.

What Keras' CSVLogger writes: epochs from 0, then the metrics in alphabetic order.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from foretrain.convergence.logs._base import Log, LogReader, log_of_rows, number
from foretrain.errors import InvalidData


class CsvLog(LogReader):
    """One row a step; cells may be empty where a metric was not logged. Columns of words are left out."""

    name = "csv"

    def suits(self, path: Path) -> bool:
        return path.suffix.lower() in (".csv", ".tsv")

    def read(self, path: Path) -> Log:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
            lines = list(csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
        if not lines:
            raise InvalidData(path.name, "the file is empty; it must have a row for each step")
        header = [name.strip() for name in lines[0]]
        if len(set(header)) != len(header):
            raise InvalidData(path.name, f"a column is named twice in {', '.join(header)}", 1)
        body = [
            (row, cells)
            for row, cells in enumerate(lines[1:], start=2)
            if any(cell.strip() for cell in cells)
        ]
        for row, cells in body:
            if len(cells) != len(header):
                raise InvalidData(
                    path.name, f"{len(cells)} cells, but the header has {len(header)} columns", row
                )
        words = {name for place, name in enumerate(header) if _is_text([cells[place] for _, cells in body])}
        rows = [
            {
                name: number(cell, path.name, row, name)
                for name, cell in zip(header, cells, strict=True)
                if name not in words
            }
            for row, cells in body
        ]
        return log_of_rows(path.name, rows)


def _is_text(cells: list[str]) -> bool:
    """Whether no cell of a column is a number (a name, a date); a bad cell among numbers is an error."""
    filled = [cell for cell in cells if cell.strip()]
    return bool(filled) and not any(_is_number(cell) for cell in filled)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class KerasCsv(LogReader):
    """A CSV (any name) whose first column is `epoch` counting from 0; separator , or ;."""

    name = "keras"

    def suits(self, path: Path) -> bool:
        if path.suffix.lower() not in (".csv", ".log"):
            return False
        with path.open(encoding="utf-8", errors="replace") as stream:
            header, first = stream.readline(), stream.readline()
        return header.split(",")[0].strip() == "epoch" and first.split(",")[0].strip() == "0"

    def read(self, path: Path) -> Log:
        """Epoch 0 ends after one epoch, so that counting starts at 1."""
        log = CsvLog().read(path)
        counted = {
            name: values + 1 if name == log.counter else values for name, values in log.columns.items()
        }
        return replace(log, columns=counted)
