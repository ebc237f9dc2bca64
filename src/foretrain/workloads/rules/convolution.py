"""Convolutions and their gradients.

FLOP = 2 · batch · positions · in/groups · out · kernel elements, over the positions of the output (of the
input if transposed); each of the two gradients costs the same. The first layer has no input gradient.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from foretrain.workloads.graph import Spec
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.rules.site import Rule, Site

_AXES = ("depth", "height", "width")


def _dims(site: Site, inputs: Spec, weight: Spec, output: Spec) -> dict[str, int]:
    transposed, groups = bool(site.settings["transposed"]), int(site.settings["groups"])
    axes = _AXES[-(len(inputs.shape) - 2) :]
    strides = site.settings["stride"] or [1]
    dilations = site.settings["dilation"] or [1]
    dims = {
        "batch": inputs.shape[0],
        "in_channels": inputs.shape[1],
        "out_channels": output.shape[1],
        "groups": groups,
        "transposed": int(transposed),
        "channels_last": site.channels_last,
    }
    for position, axis in enumerate(axes):
        dims[axis] = inputs.shape[2 + position]
        dims[f"out_{axis}"] = output.shape[2 + position]
        dims[f"kernel_{axis}"] = weight.shape[2 + position]
        dims[f"stride_{axis}"] = strides[position % len(strides)]
        dims[f"dilation_{axis}"] = dilations[position % len(dilations)]
    return dims


def _flop(dims: Mapping[str, int], inputs: Spec, weight: Spec, output: Spec) -> float:
    positions = math.prod((inputs if dims["transposed"] else output).shape[2:])
    per_position = dims["in_channels"] * dims["out_channels"] / dims["groups"] * math.prod(weight.shape[2:])
    return 2.0 * dims["batch"] * positions * per_position


def _forward(site: Site) -> tuple[Work, ...]:
    inputs, weight, output = _batched(site.input(0), site.input(1)), site.input(1), site.output()
    output = _batched(output, weight)
    dims = _dims(site, inputs, weight, output)
    work = Work(
        Kind.CONVOLUTION,
        site.direction,
        dims,
        inputs.dtype,
        _flop(dims, inputs, weight, output),
        site.read_bytes,
        site.write_bytes,
    )
    return (work,)


def _backward(site: Site) -> tuple[Work, ...]:
    grad, inputs, weight = site.input(0), site.input(1), site.input(2)
    grad, inputs = _batched(grad, weight), _batched(inputs, weight)
    dims = _dims(site, inputs, weight, grad)
    flop = _flop(dims, inputs, weight, grad)
    to_input, to_weight, to_bias = site.settings["output_mask"]
    works = []
    if to_input:
        read, write = grad.bytes + weight.bytes, inputs.bytes
        works.append(Work(Kind.CONVOLUTION, Direction.INPUT_GRADIENT, dims, inputs.dtype, flop, read, write))
    if to_weight:
        read, write = grad.bytes + inputs.bytes, weight.bytes
        works.append(Work(Kind.CONVOLUTION, Direction.WEIGHT_GRADIENT, dims, inputs.dtype, flop, read, write))
    if to_bias:
        rows = {"rows": dims["out_channels"], "length": grad.elements // dims["out_channels"]}
        write = dims["out_channels"] * (grad.bytes // max(1, grad.elements))
        works.append(
            Work(
                Kind.REDUCTION, Direction.BACKWARD, rows, grad.dtype, float(grad.elements), grad.bytes, write
            )
        )
    return tuple(works)


def _batched(spec: Spec, weight: Spec) -> Spec:
    """The spec with a batch axis, which PyTorch lets one leave out."""
    return spec if len(spec.shape) == len(weight.shape) else Spec((1, *spec.shape), spec.dtype)


RULES: Mapping[str, Rule] = {
    "aten.convolution": _forward,
    "aten.convolution_backward": _backward,
}
