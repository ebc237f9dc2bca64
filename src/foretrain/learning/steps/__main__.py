"""Fit what whole steps teach and write it: python -m foretrain.learning.steps --data DIR --graphs DIR."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretrain.learning.kernels import calibration_files
from foretrain.learning.steps import (
    few_timings_calibration,
    host_calibration,
    mixed_precision_calibration,
    replication_calibration,
    transfer_calibration,
)
from foretrain.prediction.cost_models import few_timings
from foretrain.prediction.strategies import single_process

CALIBRATIONS: Mapping[str, Callable[[Path, Path], Mapping[str, Any]]] = {
    host_calibration.FILE: host_calibration.calibrate,
    mixed_precision_calibration.FILE: mixed_precision_calibration.calibrate,
    transfer_calibration.FILE: transfer_calibration.calibrate,
    few_timings.FILE: lambda data, _: few_timings_calibration.calibrate(data),
    single_process.FILE: lambda data, _: replication_calibration.calibrate(data),
}
"""Calibration files, and what makes their content from the measurements and the folder of traced graphs."""


def main() -> None:
    """Make the calibrations named, or all."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    parser.add_argument("--graphs", type=Path, required=True, help="folder that keeps traced graphs")
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(CALIBRATIONS)}; all by default")
    arguments = parser.parse_args()
    for name in arguments.names or CALIBRATIONS:
        file = calibration_files.write(name, CALIBRATIONS[name](arguments.data, arguments.graphs))
        logging.info("%s: %d bytes", file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
