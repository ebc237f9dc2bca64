"""What TensorFlow adds to a layer, from single layers that Justus timed in it: for `frameworks.toml`.

    host_factor     (floor of a training step - floor of a forward pass) / host time of the launches it adds
    filter_passes   (time - floor - price of the convolution) / time of one pass over its filter

Filters lie as height x width x in x out and cuDNN wants out x in x height x width: each dense convolution and
gradient moves its filter, in a kernel that writes or reads single elements far apart. It shows where a filter
of up to 3x3 is larger than the images. Both are medians over six machines, whose floors differ by a factor of
two. No whole network is looked at. Run it: `python -m calibration.steps.keras_layers`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

from calibration.datasets import justus
from foretrain.facts.devices import device
from foretrain.prediction.operators import streaming
from foretrain.prediction.operators.convolution import ConvolutionModel
from foretrain.prediction.operators.host import host_model
from foretrain.prediction.operators.pricing import PHASES, listing_of
from foretrain.workloads.graph import Graph, Phase

_FLOOR_QUANTILE = 0.005
_ITEM_BYTES = 4
_LARGE_BYTES, _OVER_IMAGES, _WIDEST = 8e6, 4.0, 3
"""The filters compared: the least bytes, the least ratio to the bytes of images, the widest kernel."""


def host_factor(data: Path) -> float:
    """Host time of a launch in TensorFlow over that of plain PyTorch."""
    listing = listing_of(_dense_step())
    factors = []
    for name, (forward, training) in justus.dense_floors(data).items():
        seconds = host_model(device(name)).seconds(listing, compiled=False)
        added = float(seconds[listing.phases != PHASES.index(Phase.FORWARD)].sum())
        factors.append((training - forward) / added)
    return float(np.median(factors))


def _dense_step() -> Graph:
    """A step of plain SGD of one dense layer with an activation."""
    import torch

    from foretrain.workloads.example import Example
    from foretrain.workloads.options import ResolvedOptions
    from foretrain.workloads.tracing.step import trace

    with torch.device("meta"):
        layer = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        example = Example(layer, (torch.empty(4, 8),), loss=torch.mean, samples=4)
    return trace(example, ResolvedOptions(precision="fp32", optimizer="sgd"))


def filter_passes(data: Path) -> float:
    """Passes over the filter for one convolution."""
    timed = justus.read_convolutions(data)
    passes = []
    for name in timed.devices:
        here, target = timed.device_ids == name, device(name)
        works, seconds = timed.table.rows(here), timed.seconds[here]
        extra = seconds - np.quantile(seconds, _FLOOR_QUANTILE) - ConvolutionModel().seconds(works, target)
        side = works.dim("kernel_height")
        filters = _ITEM_BYTES * works.dim("in_channels") * works.dim("out_channels") * side**2
        images = works.bytes - filters
        shows = (filters > _OVER_IMAGES * images) & (filters > _LARGE_BYTES) & (side <= _WIDEST)
        bandwidth = target.memory_bytes_per_second * streaming.calibration().share(target)
        passes.append(float(np.median(extra[shows] * bandwidth / filters[shows])))
    return float(np.median(passes))


if __name__ == "__main__":
    data = Path(os.environ.get("FORETRAIN_DATA", "../shared/datasets"))
    sys.stdout.write(f"host_factor {host_factor(data):.2f}, filter_passes {filter_passes(data):.1f}\n")
