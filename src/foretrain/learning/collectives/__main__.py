"""Fit what links reach and write it: python -m foretrain.learning.collectives --data DIR."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from foretrain.learning.collectives import jitter
from foretrain.learning.collectives.calibration import FILE, calibrate
from foretrain.learning.kernels import calibration_files
from foretrain.prediction.stragglers import FILE as JITTER_FILE


def main() -> None:
    """Write the calibration."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    data = parser.parse_args().data
    for file in (
        calibration_files.write(FILE, calibrate(data)),
        calibration_files.write(JITTER_FILE, jitter.calibrate(data)),
    ):
        logging.info("%s: %d bytes", file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
