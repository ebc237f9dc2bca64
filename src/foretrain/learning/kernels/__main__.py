"""Fit the operator models and write their calibrations: python -m foretrain.learning.kernels --data DIR."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foretrain.learning.kernels import (
    attention_calibration,
    calibration_files,
    convolution_calibration,
    per_layer_calibration,
    products_calibration,
    recurrent_calibration,
    streaming_calibration,
)

CALIBRATIONS: Mapping[str, Callable[[Path], Mapping[str, Any]]] = {
    streaming_calibration.FILE: streaming_calibration.calibrate,
    convolution_calibration.FILE: convolution_calibration.calibrate,
    products_calibration.FILE: products_calibration.calibrate,
    attention_calibration.FILE: attention_calibration.calibrate,
    recurrent_calibration.FILE: recurrent_calibration.calibrate,
    per_layer_calibration.FILE: per_layer_calibration.calibrate,
}
"""Calibration files, and what makes their content; later ones build on earlier ones."""


def main() -> None:
    """Make the calibrations named, or all."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(CALIBRATIONS)}; all by default")
    arguments = parser.parse_args()
    for name in arguments.names or CALIBRATIONS:
        file = calibration_files.write(name, CALIBRATIONS[name](arguments.data))
        logging.info("%s: %d bytes", file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
