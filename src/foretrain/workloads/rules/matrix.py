"""Matrix products: linear layers, plain and batched products. FLOP = 2 · batch · m · n · k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from foretrain.workloads.graph import Phase
from foretrain.workloads.ops import Direction, Kind, Work
from foretrain.workloads.rules.site import Rule, Site


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


def _grouped(site: Site) -> tuple[Work, ...]:
    """Rows sorted by group, each times its group's matrix: as many FLOP as rows times one matrix.

    Where both operands are matrices (the weight's gradient) the groups split the dimension summed over.
    """
    left, right = site.input(0).shape, site.input(1).shape
    rows, k, n = left[-2], left[-1], right[-1]
    works = _work(site, 1, rows, n, k)
    groups = max(spec.shape[0] for spec in (site.input(1), site.output()) if len(spec.shape) == 3)
    return (replace(works, kind=Kind.MATMUL, dims={**works.dims, "groups": groups}),)


RULES: Mapping[str, Rule] = {
    "aten._grouped_mm": _grouped,
    "aten.mm": lambda site: _product(site, 0, 1),
    "aten.bmm": lambda site: _product(site, 0, 1),
    "aten.addmm": lambda site: _product(site, 1, 2),
    "aten.addmm_": lambda site: _product(site, 1, 2),
    "aten.baddbmm": lambda site: _product(site, 1, 2),
    "aten.addbmm": lambda site: _product(site, 1, 2),
    "aten.linear": _linear,
    "aten.mv": _matrix_vector,
    "aten.addmv": _matrix_vector,
    "aten.dot": _dot,
    "aten.vdot": _dot,
}
