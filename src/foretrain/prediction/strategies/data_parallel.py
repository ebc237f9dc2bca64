"""DistributedDataParallel: every device trains on samples of its own; gradients are averaged in buckets.

A bucket's all-reduce starts when its last gradient is ready and overlaps the rest of the backward pass; the
optimizer waits for all of them. With gradient accumulation only the last micro-batch is reduced. A
compression hook sends gradients in half precision. Devices that share out sequences or experts have gradients
to average, too; those of experts only with the devices that have the same ones.
Li et al. 2020, PyTorch Distributed (VLDB), arXiv:2006.15704.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from foretrain.prediction.collectives._base import Verb
from foretrain.prediction.strategies.gradients import (
    AVERAGING,
    BUCKET_BYTES,
    averaged,
    buckets,
    optimizer_start,
)
from foretrain.prediction.strategies.program import Axis, Exchange, Program, When
from foretrain.workloads.graph import ITEM_BYTES

HOOKS = {"fp16": ITEM_BYTES["float16"], "bf16": ITEM_BYTES["bfloat16"]}
"""The compression hooks, by the bytes they send for each element."""


def data_parallel(
    program: Program, degree: int, bucket_bytes: float = BUCKET_BYTES, compression: str | None = None
) -> Program:
    """The program of one of `degree` replicas."""
    if degree == 1 and math.prod(program.degree(axis) for axis in AVERAGING) == 1:
        return program
    return program.spread(Axis.DATA, degree, *_reductions(program, bucket_bytes, compression))


def _reductions(program: Program, bucket_bytes: float, compression: str | None) -> Iterator[Exchange]:
    graph = program.graph
    waiting, number = optimizer_start(graph), 0
    for axes, same in averaged(program):
        for bucket in buckets(same, bucket_bytes):
            number += 1
            yield Exchange(
                name=f"all-reduce gradients {number}",
                verb=Verb.ALL_REDUCE,
                bytes=bucket.bytes if compression is None else bucket.elements * HOOKS[compression],
                axis=axes[0],
                after=bucket.ready,
                before=waiting,
                when=When.LAST,
                also=axes[1:],
            )
