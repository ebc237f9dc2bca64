"""Fit what whole steps teach and write it: python -m foretrain.learning.steps --data DIR."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from foretrain.learning.kernels import calibration_files
from foretrain.learning.steps import few_timings_calibration
from foretrain.prediction import few_timings


def main() -> None:
    """Make the calibration of corrections by a few timings."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    arguments = parser.parse_args()
    content = few_timings_calibration.calibrate(arguments.data)
    file = calibration_files.write(few_timings.FILE, content)
    logging.info("%s: %d bytes", file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
