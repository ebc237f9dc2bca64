"""Operators as the rest of foretrain sees them: kind, named dimensions, FLOP and bytes.

A call of a graph stands for one operator, or several where one call does several things (a convolution's
backward pass computes the gradient of its input and of its weight). Rules in `workloads.rules` derive them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from foretrain.workloads.graph import Phase


class Kind(StrEnum):
    """What an operator does, as far as its cost is concerned."""

    LINEAR = "linear"
    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    RNN = "rnn"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    POOLING = "pooling"
    EMBEDDING = "embedding"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    COPY = "copy"
    GATHER = "gather"
    RESAMPLE = "resample"
    DROPOUT = "dropout"
    RANDOM = "random"
    SORT = "sort"
    SCAN = "scan"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    VIEW = "view"
    UNKNOWN = "unknown"


MATRIX_KINDS = frozenset({Kind.LINEAR, Kind.MATMUL, Kind.CONVOLUTION, Kind.ATTENTION, Kind.RNN})
"""The kinds whose FLOP are counted as the model's work, as in model FLOP utilisation."""


ATTENTION_GENERATIONS = ("default", "flash1", "flash2", "flash3", "cudnn")
"""Kernels of fused attention; the dimension `generation` of a work is an index. `default`: PyTorch picks."""


class Direction(StrEnum):
    """Which way an operator runs."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"
    BACKWARD = "backward"
    UPDATE = "update"


def keys_per_query(keys: int, causal: bool, window: int = 0) -> float:
    """Keys that a query attends to, on average over the sequence: half of them if causal.

    `window` is how many keys a query sees: itself and w - 1 before it, and as many behind it if not causal.
    The first queries have fewer before them, which leaves w - w (w - 1) / 2n of n keys on that side.
    """
    whole = keys / 2 if causal else float(keys)
    if not 0 < window < keys:
        return whole
    side = window if causal else (window + 1) / 2
    before = side - side * (side - 1) / (2 * keys)
    return min(whole, before if causal else 2 * before - 1)


@dataclass(frozen=True, slots=True)
class Work:
    """What one operator asks of a device, wherever it stands in the graph.

    `flop` counts a multiply-add as two. `read_bytes` and `write_bytes` are compulsory traffic: every operand
    once. `kernels` is how many launches it takes (0 for a view).
    """

    kind: Kind
    direction: Direction
    dims: Mapping[str, int]
    dtype: str
    flop: float
    read_bytes: float
    write_bytes: float
    kernels: int = 1


class Op(NamedTuple):
    """A piece of work at its place in the graph."""

    work: Work
    call: int
    name: str
    phase: Phase
    module: str
    recomputed: bool
