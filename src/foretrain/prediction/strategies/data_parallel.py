"""Data parallelism (DistributedDataParallel): own samples on every device, gradients averaged in buckets.

The all-reduce of a bucket starts when its last gradient is ready and overlaps the rest of the backward pass;
the optimizer waits for all buckets. With gradient accumulation only the last micro-batch is reduced. A
compression hook sends gradients in half precision. Gradients are also averaged along the context and expert
axes; those of experts only between devices with the same experts.

Reference: S. Li et al., "PyTorch Distributed", VLDB 2020, arXiv:2006.15704.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from foretrain.errors import InvalidRequest
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Floats
from foretrain.prediction.strategies.program import (
    AVERAGING,
    BUCKET_BYTES,
    Axis,
    Exchange,
    MemoryOptions,
    Program,
    When,
    fill_buckets,
    group_averaged,
    optimizer_start,
    reduce_last,
)
from foretrain.prediction.strategies.strategy import (
    DATA_PARALLEL,
    ExchangeSeconds,
    Layout,
    Strategy,
    divisors,
    one_of,
    whole_number,
)
from foretrain.workloads.graph import ITEM_BYTES

HOOKS = {"fp16": ITEM_BYTES["float16"], "bf16": ITEM_BYTES["bfloat16"]}
"""Bytes per element of the compression hooks."""


def data_parallel(
    program: Program, degree: int, bucket_bytes: float = BUCKET_BYTES, compression: str | None = None
) -> Program:
    """The program of one of `degree` replicas."""
    if degree == 1 and math.prod(program.degree(axis) for axis in AVERAGING) == 1:
        return program
    return program.with_axis(Axis.DATA, degree, *_reductions(program, bucket_bytes, compression))


def _reductions(program: Program, bucket_bytes: float, compression: str | None) -> Iterator[Exchange]:
    graph = program.graph
    waiting, number = optimizer_start(graph), 0
    for axes, same in group_averaged(program):
        for bucket in fill_buckets(same, bucket_bytes):
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


class DataParallel(Strategy):
    """`ddp`, or `dp=D` in a list: replicas that hold all state and average their gradients."""

    name = DATA_PARALLEL
    words = (DATA_PARALLEL,)
    keys = ("dp", "compress", "overlap")
    form = DATA_PARALLEL
    alone = "data parallelism alone"
    plan_words = (DATA_PARALLEL,)
    order = 40

    def parse(self, text: str, devices: int, devices_per_node: int) -> Layout:
        """Every device is a replica."""
        del devices_per_node
        return Layout(text, data=devices)

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`dp` (by default all devices the other degrees leave), `compress=fp16|bf16`, `overlap=yes|no`."""
        devices, model = layout.data, layout.model_degree
        data = whole_number("dp", given["dp"]) if "dp" in given else max(1, devices // model)
        if model * data != devices:
            raise InvalidRequest(_does_not_multiply(layout, data, devices))
        compression = given.get("compress")
        if compression is not None:
            one_of("compress", compression, tuple(HOOKS))
        overlaps = one_of("overlap", given.get("overlap", "yes"), ("yes", "no")) == "yes"
        return replace(layout, data=data, compression=compression, overlaps=overlaps)

    def replicate(self, program: Program, layout: Layout) -> Program:
        """Gradients averaged in buckets, during the backward pass or after it."""
        replicated = data_parallel(program, layout.data, compression=layout.compression)
        return replicated if layout.overlaps else reduce_last(replicated)

    def memory(self, options: MemoryOptions, program: Program, layout: Layout) -> MemoryOptions:
        """Buckets for the gradients."""
        del program
        return replace(options, data_parallel=layout.data)

    def exposed_seconds(
        self,
        layout: Layout,
        sent_bytes: Floats,
        forward: Floats,
        backward: Floats,
        micro_batches: int,
        exchange: ExchangeSeconds,
    ) -> Floats:
        """max(last bucket, all-reduce - backward pass)."""
        del layout, forward, micro_batches
        whole = exchange(Verb.ALL_REDUCE, sent_bytes, AVERAGING)
        # The last bucket is filled when the backward pass ends, so that nothing hides it.
        last_bucket = whole * np.minimum(1.0, BUCKET_BYTES / np.maximum(sent_bytes, 1.0))
        exposed: Floats = np.maximum(last_bucket, whole - backward)
        return exposed

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """The number of replicas, and the communication hook."""
        data = ("DATA_PARALLEL", str(layout.data), "replicas that share no state")
        hook = ("GRADIENT_COMPRESSION", str(layout.compression), "communication hook of DDP")
        return (*((data,) if layout.data > 1 else ()), *((hook,) if layout.compression else ()))


def _does_not_multiply(layout: Layout, data: int, devices: int) -> str:
    model = layout.model_degree
    degrees = {"tensor": layout.tensor, "context": layout.context, "pipeline": layout.pipeline, "data": data}
    product = " x ".join(f"{name} {n}" for name, n in degrees.items() if n > 1 or name == "data")
    problem = f"{product} = {model * data} devices, but the hardware has {devices}"
    if devices % model == 0:
        return f"{problem}; dp={devices // model} uses all of them"
    return f"{problem}; tensor x context x pipeline must divide {devices} ({divisors(devices)})"
