"""Matrix products as works, the way the tracing rules describe them."""

from __future__ import annotations

from foretrain.workloads.ops import Direction, Kind, Work

_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1}


def product(batch: int, m: int, n: int, k: int, dtype: str, is_linear: bool, has_bias: bool = False) -> Work:
    """`batch` products of m x k by k x n; products of FP8 operands are written in BF16."""
    item = _ITEM_BYTES[dtype]
    dims = {"batch": batch, "m": m, "n": n, "k": k}
    if is_linear:
        dims |= {"tokens": m, "in": k, "out": n}
    if has_bias:
        dims |= {"bias": 1}
    return Work(
        kind=Kind.LINEAR if is_linear else Kind.MATMUL,
        direction=Direction.FORWARD,
        dims=dims,
        dtype=dtype,
        flop=2.0 * batch * m * n * k,
        read_bytes=float(item * batch * k * (m + n)),
        write_bytes=float(max(item, 2) * batch * m * n),
    )
