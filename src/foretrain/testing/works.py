"""Works of every kind in rows that grow: each is larger than the one before in one dimension and no other.

They are described as the tracing rules describe them (`workloads.rules`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from foretrain.workloads.graph import ITEM_BYTES
from foretrain.workloads.ops import Direction, Kind, Work

Row = tuple[Work, ...]
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Sizes a dimension takes, from the smallest possible on."""
_BACKWARD = (Direction.FORWARD, Direction.BACKWARD)


def growing_works(kind: Kind, dtype: str) -> Iterator[Row]:
    """Rows of works of a kind, each growing in one dimension."""
    yield from _MAKERS.get(kind, _streamed)(kind, dtype)


def empty_work(kind: Kind, dtype: str) -> Work:
    """The smallest work of a kind with nothing left to do: an empty batch."""
    least = next(growing_works(kind, dtype))[0]
    none = {name: 0 if name in _COUNTS else size for name, size in least.dims.items()}
    return replace(least, dims=none, flop=0.0, read_bytes=0.0, write_bytes=0.0)


_COUNTS = frozenset({"batch", "tokens", "m", "elements", "rows"})
"""Dimensions that an empty batch leaves at 0."""


def _item(dtype: str) -> int:
    return 4 if dtype == "tf32" else ITEM_BYTES[dtype]


def product(kind: Kind, dtype: str, batch: int, m: int, n: int, k: int) -> Work:
    """`batch` products of m x k by k x n."""
    item = _item(dtype)
    return Work(
        kind=kind,
        direction=Direction.FORWARD,
        dims={"batch": batch, "m": m, "n": n, "k": k, "tokens": m, "in": k, "out": n},
        dtype=dtype,
        flop=2.0 * batch * m * n * k,
        read_bytes=float(item * batch * k * (m + n)),
        write_bytes=float(item * batch * m * n),
    )


def _products(kind: Kind, dtype: str) -> Iterator[Row]:
    for shape in ((64, 64, 64), (512, 1024, 256), (4096, 1024, 1024), (17, 1000, 513)):
        m, n, k = shape
        yield tuple(product(kind, dtype, 1, size, n, k) for size in SIZES)
        yield tuple(product(kind, dtype, 1, m, size, k) for size in SIZES)
        yield tuple(product(kind, dtype, 1, m, n, size) for size in SIZES)
        if kind is Kind.MATMUL:
            yield tuple(product(kind, dtype, size, m, n, k) for size in SIZES)


def convolution(
    dtype: str, direction: Direction, batch: int, channels: tuple[int, int], side: int, kernel: int,
    groups: int = 1,
) -> Work:  # fmt: skip
    """A convolution of stride 1 that keeps the size of its images."""
    inputs, outputs = channels
    item, positions = _item(dtype), batch * side * side
    weights = item * inputs * outputs // groups * kernel * kernel
    images = {"in": item * positions * inputs, "out": item * positions * outputs}
    read, write = images["in"] + weights, images["out"]
    if direction is Direction.INPUT_GRADIENT:
        read, write = images["out"] + weights, images["in"]
    elif direction is Direction.WEIGHT_GRADIENT:
        read, write = images["in"] + images["out"], weights
    spatial = {"height": side, "width": side, "out_height": side, "out_width": side}
    spatial |= {"kernel_height": kernel, "kernel_width": kernel}
    spatial |= {f"{what}_{axis}": 1 for what in ("stride", "dilation") for axis in ("height", "width")}
    return Work(
        kind=Kind.CONVOLUTION,
        direction=direction,
        dims={
            "batch": batch, "in_channels": inputs, "out_channels": outputs, "groups": groups,
            "transposed": 0, "channels_last": 1, **spatial,
        },
        dtype=dtype,
        flop=2.0 * positions * inputs * outputs / groups * kernel * kernel,
        read_bytes=float(read),
        write_bytes=float(write),
    )  # fmt: skip


def _convolutions(kind: Kind, dtype: str) -> Iterator[Row]:
    del kind
    for direction in (Direction.FORWARD, Direction.INPUT_GRADIENT, Direction.WEIGHT_GRADIENT):
        for kernel in (1, 3, 5):
            yield tuple(convolution(dtype, direction, b, (64, 64), 28, kernel) for b in SIZES[:16])
            yield tuple(convolution(dtype, direction, 8, (64, c), 14, kernel) for c in SIZES[:18])
            yield tuple(convolution(dtype, direction, 8, (c, 64), 14, kernel) for c in SIZES[:18])
            yield tuple(convolution(dtype, direction, 4, (32, 32), s, kernel) for s in SIZES[:14])
        yield tuple(convolution(dtype, direction, b, (96, 96), 28, 3, groups=96) for b in SIZES[:16])


def attention(
    dtype: str, direction: Direction, batch: int, heads: int, length: int, head: int, causal: int
) -> Work:
    """Fused attention of a sequence with itself."""
    products = 2.0 if direction is Direction.FORWARD else 5.0
    tensor = _item(dtype) * batch * heads * length * head
    return Work(
        kind=Kind.ATTENTION,
        direction=direction,
        dims={
            "batch": batch, "heads": heads, "kv_heads": heads, "queries": length, "keys": length,
            "head": head, "value_head": head, "causal": causal, "flash": 1,
        },
        dtype=dtype,
        flop=products * batch * heads * length * length * 2 * head * (0.5 if causal else 1.0),
        read_bytes=float(tensor * (3 if direction is Direction.FORWARD else 5)),
        write_bytes=float(tensor * (1 if direction is Direction.FORWARD else 3)),
    )  # fmt: skip


def _attentions(kind: Kind, dtype: str) -> Iterator[Row]:
    del kind
    for direction in _BACKWARD:
        for causal in (0, 1):
            yield tuple(attention(dtype, direction, b, 12, 512, 64, causal) for b in SIZES[:14])
            yield tuple(attention(dtype, direction, 4, h, 512, 64, causal) for h in SIZES[:12])
            yield tuple(attention(dtype, direction, 2, 16, s, 128, causal) for s in SIZES)


def recurrent(dtype: str, direction: Direction, steps: int, batch: int, hidden: int, layers: int) -> Work:
    """LSTM layers as wide as their input."""
    item, gates = _item(dtype), 4
    passes = 1 if direction is Direction.FORWARD else 2
    weights = item * layers * gates * hidden * 2 * hidden
    states = item * steps * batch * hidden
    return Work(
        kind=Kind.RNN,
        direction=direction,
        dims={
            "steps": steps, "batch": batch, "in": hidden, "hidden": hidden, "layers": layers,
            "directions": 1, "gates": gates,
        },
        dtype=dtype,
        flop=passes * 2.0 * steps * batch * gates * hidden * 2 * hidden * layers,
        read_bytes=float(weights + states),
        write_bytes=float(states * (1 + layers)),
        kernels=steps * layers,
    )  # fmt: skip


def _recurrents(kind: Kind, dtype: str) -> Iterator[Row]:
    del kind
    for direction in _BACKWARD:
        yield tuple(recurrent(dtype, direction, s, 32, 512, 2) for s in SIZES[:14])
        yield tuple(recurrent(dtype, direction, 50, b, 512, 2) for b in SIZES[:14])
        yield tuple(recurrent(dtype, direction, 50, 32, h, 1) for h in SIZES)


def streaming_work(
    kind: Kind, dtype: str, direction: Direction, rows: int, length: int, over_batch: int = 0
) -> Work:
    """An operator that reads and writes `rows` x `length` elements."""
    elements = rows * length
    moved = float(_item(dtype) * elements)
    reads = 1 if direction is Direction.FORWARD else 2
    return Work(
        kind=kind,
        direction=direction,
        dims={"elements": elements, "rows": rows, "length": length, "over_batch": over_batch},
        dtype=dtype,
        flop=5.0 * elements,
        read_bytes=reads * moved,
        write_bytes=moved,
    )


def _streamed(kind: Kind, dtype: str) -> Iterator[Row]:
    for direction in _BACKWARD:
        for length in (1, 64, 768, 1000, 8192):
            yield tuple(streaming_work(kind, dtype, direction, 16 * rows, length) for rows in SIZES)
        if kind is Kind.NORMALISATION:
            yield tuple(streaming_work(kind, dtype, direction, 64, 512 * n, over_batch=1) for n in SIZES)


_MAKERS: Mapping[Kind, Callable[[Kind, str], Iterator[Row]]] = {
    Kind.LINEAR: _products,
    Kind.MATMUL: _products,
    Kind.CONVOLUTION: _convolutions,
    Kind.ATTENTION: _attentions,
    Kind.RNN: _recurrents,
}
