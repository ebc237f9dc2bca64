"""Single operators as works, described as the tracing rules describe them in a graph."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Convolution:
    """A layer: NCHW input, square or not, symmetric padding."""

    batch: int
    in_channels: int
    out_channels: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (
            (size + 2 * pad - kernel) // stride + 1
            for size, pad, kernel, stride in zip(
                self.size, self.padding, self.kernel, self.stride, strict=True
            )
        )
        return height, width

    def work(self, direction: Direction, dtype: str = "float32") -> Work:
        """The layer run in one direction."""
        (height, width), (out_height, out_width) = self.size, self.out_size
        dims = {
            "batch": self.batch,
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "groups": 1,
            "transposed": 0,
        }
        for axis, index in (("height", 0), ("width", 1)):
            dims[axis] = self.size[index]
            dims[f"out_{axis}"] = self.out_size[index]
            dims[f"kernel_{axis}"] = self.kernel[index]
            dims[f"stride_{axis}"] = self.stride[index]
            dims[f"dilation_{axis}"] = 1
        item = _ITEM_BYTES[dtype]
        inputs = float(item * self.batch * self.in_channels * height * width)
        outputs = float(item * self.batch * self.out_channels * out_height * out_width)
        depth = self.in_channels * self.kernel[0] * self.kernel[1]
        weight = float(item * self.out_channels * depth)
        read, write = {
            Direction.FORWARD: (inputs + weight, outputs),
            Direction.INPUT_GRADIENT: (outputs + weight, inputs),
            Direction.WEIGHT_GRADIENT: (outputs + inputs, weight),
        }[direction]
        flop = 2.0 * self.batch * out_height * out_width * self.out_channels * depth
        return Work(Kind.CONVOLUTION, direction, dims, dtype, flop, read, write)


def attention(
    batch: int,
    lengths: tuple[int, int],
    heads: tuple[int, int],
    widths: tuple[int, int],
    *,
    direction: Direction,
    dtype: str,
    is_causal: bool,
    window: int = 0,
) -> Work:
    """Fused attention: `lengths` of queries and keys, `heads` of queries and keys, `widths` of key and value.

    FLOP are those that the mask leaves: half if causal, the window if that is shorter.
    """
    (queries, keys), (many, kv_heads), (head, value_head) = lengths, heads, widths
    is_forward, item = direction is Direction.FORWARD, _ITEM_BYTES[dtype]
    dims = {
        "batch": batch,
        "heads": many,
        "kv_heads": kv_heads,
        "queries": queries,
        "keys": keys,
        "head": head,
        "value_head": value_head,
        "causal": int(is_causal),
        "flash": 1,
    }
    if window:
        dims["window"] = window
    left = keys / 2 if is_causal else keys
    left = min(left, window) if window else left
    products = head + value_head if is_forward else 3 * head + 2 * value_head
    flop = 2.0 * batch * many * queries * left * products
    query, result = queries * many * head, queries * many * value_head
    key_value = keys * kv_heads * (head + value_head)
    # Backward reads result and gradient too, and writes the gradients of queries, keys and values.
    read = query + key_value + (0 if is_forward else 2 * result)
    write = result if is_forward else query + key_value
    return Work(
        Kind.ATTENTION, direction, dims, dtype, flop, float(batch * item * read), float(batch * item * write)
    )


def norm(rows: int, width: int, direction: Direction, dtype: str, has_mean: bool) -> Work:
    """A layer norm (`has_mean`) or RMS norm over rows, as the tracing rules describe it."""
    item = _ITEM_BYTES[dtype]
    tensor, statistics = item * rows * width, 4 * rows * (2 if has_mean else 1)
    weights = item * width * (2 if has_mean else 1)
    if direction is Direction.FORWARD:
        read, write = tensor + weights, tensor + statistics
    else:
        read, write = 2 * tensor + statistics + weights, tensor + weights
    dims = {"rows": rows, "length": width, "over_batch": 0}
    flop = 5.0 * rows * width
    return Work(Kind.NORMALISATION, direction, dims, dtype, flop, float(read), float(write))


def stream(
    kind: Kind, direction: Direction, rows: int, length: int, reads: int, dtype: str = "float16"
) -> Work:
    """A pointwise kernel or softmax: some tensors read, one written."""
    tensor = float(_ITEM_BYTES[dtype] * rows * length)
    dims = {"rows": rows, "length": length} if kind is Kind.SOFTMAX else {"elements": rows * length}
    return Work(kind, direction, dims, dtype, float(rows * length), reads * tensor, tensor)
