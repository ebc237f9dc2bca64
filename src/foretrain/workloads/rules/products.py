"""Matrix products, convolutions, attention, recurrent networks and selective scans: the work of a model.

Products: FLOP = 2 · batch · m · n · k.

Convolutions: FLOP = 2 · batch · positions · in/groups · out · kernel elements, over the positions of the
output (of the input if transposed); each of the two gradients costs the same. The first layer has no input
gradient.

Selective scans of state-space models: h = exp(ΔA)·h + (Δu)·B, y = C·h + D·u, gated by silu(z).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from foretrain.workloads.graph import Phase, Spec
from foretrain.workloads.ops import ATTENTION_GENERATIONS, Direction, Kind, Work, keys_per_query
from foretrain.workloads.rules.site import Rule, Site

_SCAN_FLOP_PER_STATE = 7
"""Δ·A, its exponential, (Δu)·B, a multiply-add for h and one for C·h."""
_SCAN_FLOP_PER_CHANNEL = 8
"""Δ + bias and softplus (2), Δ·u, a multiply-add of the skip, silu and product of the gate (3)."""
_SCANS_BACKWARD = 3
"""States are computed again (1), then each multiply-add has two gradients (2)."""


def _product(site: Site, a: int, b: int) -> tuple[Work, ...]:
    """A product of operand `a` (batch x m x k) and operand `b` (batch x k x n)."""
    left, right = site.input(a).shape, site.input(b).shape
    batch = left[0] if len(left) == 3 else 1
    m, k, n = left[-2], left[-1], right[-1]
    return (_work(site, batch, m, n, k, has_bias=a > 0),)


def _work(site: Site, batch: int, m: int, n: int, k: int, has_bias: bool = False) -> Work:
    direction = _direction(site)
    is_linear = batch == 1 and (site.weighted or direction is Direction.WEIGHT_GRADIENT)
    dims = {"batch": batch, "m": m, "n": n, "k": k}
    if is_linear:
        dims |= _layer_names(direction, m, n, k)
        dims |= {"bias": 1} if has_bias else {}
    return Work(
        kind=Kind.LINEAR if is_linear else Kind.MATMUL,
        direction=direction,
        dims=dims,
        dtype=site.dtype,
        flop=2.0 * batch * m * n * k,
        read_bytes=site.read_bytes,
        write_bytes=site.write_bytes,
    )


def _direction(site: Site) -> Direction:
    if site.phase is not Phase.BACKWARD:
        return site.direction
    if site.weighted:
        return Direction.INPUT_GRADIENT
    return Direction.WEIGHT_GRADIENT if site.of_weighted else Direction.BACKWARD


def _layer_names(direction: Direction, m: int, n: int, k: int) -> dict[str, int]:
    """m, n, k by what they are of the layer: its tokens, inputs and outputs."""
    if direction is Direction.INPUT_GRADIENT:
        return {"tokens": m, "in": n, "out": k}
    if direction is Direction.WEIGHT_GRADIENT:
        return {"tokens": k, "in": n, "out": m}
    return {"tokens": m, "in": k, "out": n}


def _products(site: Site) -> tuple[Work, ...]:
    """Layers that read the same input as one product: their outputs add up, and in the gradient of the input
    the dimension summed over."""
    sizes = []
    first = 0
    for count in site.settings["operands"]:
        left, right = site.input(first + count - 2).shape, site.input(first + count - 1).shape
        sizes.append((left[-2], right[-1], left[-1]))
        first += count
    m, n, k = sizes[0]
    direction = _direction(site)
    if direction is Direction.INPUT_GRADIENT:
        k = sum(size[2] for size in sizes)
    elif direction is Direction.WEIGHT_GRADIENT:
        m = sum(size[0] for size in sizes)
    else:
        n = sum(size[1] for size in sizes)
    return (_work(site, 1, m, n, k, has_bias=max(site.settings["operands"]) > 2),)


def _linear(site: Site) -> tuple[Work, ...]:
    inputs, weight = site.input(0), site.input(1)
    tokens = inputs.elements // inputs.shape[-1]
    has_bias = len(site.inputs) > 2 and site.inputs[2] is not None
    return (_work(site, 1, tokens, weight.shape[0], inputs.shape[-1], has_bias),)


def _matrix_vector(site: Site) -> tuple[Work, ...]:
    matrix = next(spec for spec in site.inputs if spec is not None and len(spec.shape) == 2)
    return (_work(site, 1, matrix.shape[0], 1, matrix.shape[1]),)


def _dot(site: Site) -> tuple[Work, ...]:
    return (_work(site, 1, 1, 1, site.input(0).elements),)


def _price_grouped(site: Site) -> tuple[Work, ...]:
    """Rows sorted by group, each times its group's matrix: as many FLOP as rows times one matrix.

    Where both operands are matrices (the weight's gradient) the groups split the dimension summed over.
    """
    left, right = site.input(0).shape, site.input(1).shape
    rows, k, n = left[-2], left[-1], right[-1]
    works = _work(site, 1, rows, n, k)
    groups = max(spec.shape[0] for spec in (site.input(1), site.output()) if len(spec.shape) == 3)
    return (replace(works, kind=Kind.MATMUL, dims={**works.dims, "groups": groups}),)


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


def _convolution(site: Site) -> tuple[Work, ...]:
    inputs, weight, output = _add_batch_axis(site.input(0), site.input(1)), site.input(1), site.output()
    output = _add_batch_axis(output, weight)
    dims = _dims(site, inputs, weight, output)
    if len(site.inputs) > 2 and site.inputs[2] is not None:
        dims["bias"] = 1
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


def _convolution_backward(site: Site) -> tuple[Work, ...]:
    grad, inputs, weight = site.input(0), site.input(1), site.input(2)
    grad, inputs = _add_batch_axis(grad, weight), _add_batch_axis(inputs, weight)
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


def _add_batch_axis(spec: Spec, weight: Spec) -> Spec:
    """The spec with a batch axis, which PyTorch lets one leave out."""
    return spec if len(spec.shape) == len(weight.shape) else Spec((1, *spec.shape), spec.dtype)


GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _attention_dims(site: Site, first: int) -> dict[str, int]:
    query, key, value = (site.input(first + offset).shape for offset in range(3))
    heads = query[-3] if len(query) > 2 else 1
    batch = 1
    for size in query[:-3]:
        batch *= size
    algorithm = site.settings["algorithm"]
    chosen = (
        {"generation": ATTENTION_GENERATIONS.index(algorithm)} if algorithm in ATTENTION_GENERATIONS else {}
    )
    side = site.settings.get("window", 0)
    window = side if site.settings["causal"] else 2 * side - 1
    if 0 < window < key[-2]:
        chosen["window"] = window
    return {
        "batch": batch,
        "heads": heads,
        "kv_heads": key[-3] if len(key) > 2 else 1,
        "queries": query[-2],
        "keys": key[-2],
        "head": query[-1],
        "value_head": value[-1],
        "causal": int(bool(site.settings["causal"])),
        "flash": int(algorithm != "efficient"),
        "dropout": int(site.settings["dropout"] > 0),
        **chosen,
    }


def _attention(site: Site) -> tuple[Work, ...]:
    """Two products over the score matrix: 2 · b · h · q · k · (head + value head), of which a causal mask
    leaves half and a window its pairs."""
    return (_attention_work(site, _attention_dims(site, 0), products=2.0),)


def _attention_backward(site: Site) -> tuple[Work, ...]:
    """Five products: the scores again, and the gradients of scores, query, key and value."""
    return (_attention_work(site, _attention_dims(site, 1), products=5.0),)


def _attention_work(site: Site, dims: dict[str, int], products: float) -> Work:
    keys = keys_per_query(dims["keys"], bool(dims["causal"]), dims.get("window", 0))
    scores = float(dims["batch"] * dims["heads"] * dims["queries"]) * keys
    flop = products * scores * (dims["head"] + dims["value_head"])
    return Work(Kind.ATTENTION, site.direction, dims, site.dtype, flop, site.read_bytes, site.write_bytes)


def _rnn_dims(site: Site) -> dict[str, int]:
    inputs = site.input(0 if site.name == "foretrain.rnn" else 1).shape
    steps, batch = (inputs[1], inputs[0]) if site.settings["batch_first"] else (inputs[0], inputs[1])
    return {
        "steps": steps,
        "batch": batch,
        "in": inputs[2],
        "hidden": int(site.settings["hidden"]),
        "layers": int(site.settings["layers"]),
        "directions": 2 if site.settings["bidirectional"] else 1,
        "gates": GATES[site.settings["mode"]],
    }


def _rnn(site: Site) -> tuple[Work, ...]:
    """Per layer and direction 2 · steps · batch · gates · hidden · (inputs + hidden); twice that backward."""
    dims = _rnn_dims(site)
    first = dims["in"] + dims["hidden"]
    later = dims["hidden"] * dims["directions"] + dims["hidden"]
    columns = first + later * (dims["layers"] - 1)
    flop = 2.0 * dims["steps"] * dims["batch"] * dims["gates"] * dims["hidden"] * dims["directions"] * columns
    if site.name == "foretrain.rnn_backward":
        flop *= 2
    kernels = dims["steps"] * dims["layers"]
    return (
        Work(Kind.RNN, site.direction, dims, site.dtype, flop, site.read_bytes, site.write_bytes, kernels),
    )


def _scan(site: Site, times: int, first: int) -> tuple[Work, ...]:
    batch, width, tokens = site.input(first).shape
    states = site.input(first + 2).shape[-1]
    dims = {"batch": batch, "width": width, "tokens": tokens, "states": states}
    flop_per_channel = _SCAN_FLOP_PER_STATE * states + _SCAN_FLOP_PER_CHANNEL
    flop = float(times * batch * width * tokens * flop_per_channel)
    return (Work(Kind.SCAN, site.direction, dims, site.dtype, flop, site.read_bytes, site.write_bytes),)


RULES: Mapping[str, Rule] = {
    "aten._grouped_mm": _price_grouped,
    "aten.mm": lambda site: _product(site, 0, 1),
    "aten.bmm": lambda site: _product(site, 0, 1),
    "aten.addmm": lambda site: _product(site, 1, 2),
    "aten.addmm_": lambda site: _product(site, 1, 2),
    "aten.baddbmm": lambda site: _product(site, 1, 2),
    "aten.addbmm": lambda site: _product(site, 1, 2),
    "foretrain.products": _products,
    "aten.linear": _linear,
    "aten.mv": _matrix_vector,
    "aten.addmv": _matrix_vector,
    "aten.dot": _dot,
    "aten.vdot": _dot,
    "aten.convolution": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "foretrain.attention": _attention,
    "foretrain.attention_backward": _attention_backward,
    "foretrain.rnn": _rnn,
    "foretrain.rnn_backward": _rnn,
    "foretrain.selective_scan": lambda site: _scan(site, 1, first=0),
    "foretrain.selective_scan_backward": lambda site: _scan(site, _SCANS_BACKWARD, first=1),
}
