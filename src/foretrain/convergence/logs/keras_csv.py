"""What Keras' CSVLogger writes: epochs from 0, then the metrics in alphabetic order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from foretrain.convergence.logs._base import Log, LogReader
from foretrain.convergence.logs.csv_log import CsvLog


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
