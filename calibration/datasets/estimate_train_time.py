"""estimate-train-time: operators of language models, forward and backward, FP16, on A100-80 and GH200.

Times are from the first to the last kernel in a profiler's trace, in short bursts after idling. Attention is
that of the flash-attn package (version 2), without a mask. Its RMS norm is a chain of eager kernels in FP32,
its masks and softmaxes are those of GPT-NeoX.

`rows` gives the lines of some operators as they are; `read_attention` and `read_streams` describe them as the
tracing rules do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from calibration.datasets import measurements as tables
from calibration.datasets.measurements import Measurements, measurements_of
from calibration.datasets.works import attention, norm, stream
from foretrain.workloads.ops import Direction, Kind, Work

SOURCE = "estimate_train_time"
OPERATORS_FILE = Path("estimate_train_time/operators_fp16.csv.gz")
OPTIMIZER_FILE = Path("estimate_train_time/optimizer_fp16.csv")
DIRECTIONS = {"forward": Direction.FORWARD, "backward": Direction.BACKWARD}
_VOCABULARY, _PADDED = 50_257, 128


def rows(data: Path, operators: Collection[str]) -> Iterator[Mapping[str, str]]:
    """The lines of some operators."""
    for row in tables.rows(data / OPERATORS_FILE):
        if row["op"] in operators:
            yield row


def read_attention(data: Path, every: int = 1) -> Measurements:
    """Every so many of the attention passes; the label is the head dimension."""
    return measurements_of(SOURCE, _attention(data, every))


def _attention(data: Path, every: int) -> Iterator[tuple[Work, str, float, str]]:
    for number, row in enumerate(rows(data, {"flash_atten"})):
        if number // 2 % every:  # forward and backward stand side by side
            continue
        heads, length = int(row["heads"]) // int(row["tensor_parallel"]), int(row["seq_len"])
        head = int(row["width"]) // int(row["heads"])
        work = attention(
            int(row["batch"]),
            (length, length),
            (heads, heads),
            (head, head),
            direction=DIRECTIONS[row["phase"]],
            dtype="float16",
            is_causal=False,
        )
        yield work, row["device"], float(row["seconds"]), str(head)


def read_streams(data: Path, every: int = 1) -> Measurements:
    """Layer norms, GELUs, additions, softmaxes: memory-bound operators of one kernel or two."""
    return measurements_of(SOURCE, _streams(data, every))


def _streams(data: Path, every: int) -> Iterator[tuple[Work, str, float, str]]:
    counts: dict[tuple[str, str, str], int] = {}
    for row in rows(data, {"layernorm", "gelu", "res_add", "softmax"}):
        key = row["device"], row["op"], row["phase"]
        counts[key] = counts.get(key, 0) + 1
        if counts[key] % every:
            continue
        yield _stream(row), row["device"], float(row["seconds"]), row["op"]


def _stream(row: Mapping[str, str]) -> Work:
    direction, width = DIRECTIONS[row["phase"]], int(row["width"] or 0)
    tokens, parts = int(row["batch"]) * int(row["seq_len"]), int(row["tensor_parallel"])
    is_backward = direction is Direction.BACKWARD
    if row["op"] == "layernorm":
        return norm(tokens, width, direction, "float16", has_mean=True)
    if row["op"] == "softmax":
        lines = int(row["batch"]) * int(row["heads"]) // parts * int(row["seq_len"])
        return stream(Kind.SOFTMAX, direction, lines, int(row["seq_len"]), reads=2 if is_backward else 1)
    if row["op"] == "gelu":
        return stream(Kind.ELEMENTWISE, direction, tokens, 4 * width // parts, reads=2 if is_backward else 1)
    return stream(Kind.ELEMENTWISE, direction, tokens, width, reads=2)


def padded_vocabulary(tensor_parallel: int) -> int:
    """The vocabulary, padded to a multiple of 128 per part."""
    unit = _PADDED * tensor_parallel
    return -(-_VOCABULARY // unit) * unit
