"""Fit the shipped calibrations anew: python -m calibration --data DIR --graphs DIR [NAME ...].

Without names, all of them, and then what they would be without each source that is judged.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calibration import files, left_out, scaling
from calibration.collectives import jitter, links
from calibration.kernels import attention, convolution, per_layer, products, recurrent, streaming
from calibration.steps import data_parallel, few_timings, framework_host, host, mixed_precision
from foretrain.facts.calibrations import forget_constants

Calibrate = Callable[[Path, Path], Mapping[str, Any]]


def _from_data(calibrate: Callable[[Path], Mapping[str, Any]]) -> Calibrate:
    """A calibration that needs no traced graphs."""
    return lambda data, _: calibrate(data)


CALIBRATIONS: Mapping[str, Calibrate] = {
    streaming.FILE: _from_data(streaming.calibrate),
    convolution.FILE: _from_data(convolution.calibrate),
    products.FILE: _from_data(products.calibrate),
    attention.FILE: _from_data(attention.calibrate),
    recurrent.FILE: _from_data(recurrent.calibrate),
    per_layer.FILE: _from_data(per_layer.calibrate),
    links.FILE: _from_data(links.calibrate),
    jitter.FILE: _from_data(jitter.calibrate),
    scaling.FILE: _from_data(scaling.calibrate),
    host.FILE: host.calibrate,
    framework_host.FILE: framework_host.calibrate,
    mixed_precision.FILE: mixed_precision.calibrate,
    few_timings.FILE: _from_data(few_timings.calibrate),
    data_parallel.FILE: _from_data(data_parallel.calibrate),
}
"""Calibration files in the order of fitting (later ones build on earlier ones), and what makes each.

The arguments are the folder of public measurements and the folder that keeps traced graphs.
"""


def main() -> None:
    """Make the named calibrations, or all."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(prog="python -m calibration", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of public measurements")
    parser.add_argument("--graphs", type=Path, required=True, help="folder that keeps traced graphs")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(CALIBRATIONS)}; all by default"
    )
    parser.add_argument(
        "--without", action="append", choices=list(left_out.LEFT_OUT),
        help="what calibrations would be without a source; shipped ones stay; may be repeated",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.names and arguments.without:
        parser.error("--without changes no calibration: it takes no names")
    unknown = [name for name in arguments.names if name not in CALIBRATIONS]
    if unknown:
        parser.error(f"unknown calibration {', '.join(unknown)}; known: {', '.join(CALIBRATIONS)}")
    every = not arguments.names and not arguments.without
    for name in CALIBRATIONS if every else arguments.names:
        file = files.write(name, CALIBRATIONS[name](arguments.data, arguments.graphs))
        forget_constants()
        logging.info("%s: %d bytes", file.name, file.stat().st_size)
    for source in left_out.LEFT_OUT if every else arguments.without or ():
        file = left_out.write(source, arguments.data, arguments.graphs)
        logging.info("without %s: %d bytes", source, file.stat().st_size)


if __name__ == "__main__":
    main()
