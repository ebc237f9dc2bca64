"""aiconfigurator's prefill attention: flash kernels, causal, BF16, forward only.

Of its many kernels those PyTorch calls too are read (FlashAttention 2 and 3; on the B200 FlashInfer's). Some
rows say no sliding window was used and yet are up to twelve times faster than tensor cores or memory could
be: rows above `_BELIEVABLE` of peak, or of bandwidth with more bytes than the cache holds, are left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foretrain.facts.devices import device
from foretrain.learning.measurements._base import Measurements, measurements, rows
from foretrain.learning.measurements.aiconfigurator_products import DEVICES
from foretrain.prediction.operators.listing import Flags
from foretrain.prediction.operators.pricing import peak_flop_per_second
from foretrain.workloads.ops import Direction, Kind, Work

FILE = Path("aiconfigurator/context_attention.csv.gz")
_KERNELS = frozenset(
    {
        "fa3",
        "flash_attention",
        "vllm_flash_attn",
        "vllm_flash_attn_fa2",
        "vllm_flash_attn_fa3",
        "vllm_flashinfer",
    }
)
_BELIEVABLE = 0.85
"""A cut chosen here, not a published bound: plain products of these GPUs stay below it when large."""
_ITEM = 2


def work(batch: int, length: int, heads: int, kv_heads: int, head: int) -> Work:
    """Causal attention of a batch of sequences, as the tracing rules describe it."""
    dims = {
        "batch": batch,
        "heads": heads,
        "kv_heads": kv_heads,
        "queries": length,
        "keys": length,
        "head": head,
        "value_head": head,
        "causal": 1,
        "flash": 1,
    }
    flop = 2.0 * batch * heads * length**2 * head
    tokens = _ITEM * batch * length * head
    read, write = float(tokens * (heads + 2 * kv_heads)), float(tokens * heads)
    return Work(Kind.ATTENTION, Direction.FORWARD, dims, "bfloat16", flop, read, write)


def read(data: Path) -> Measurements:
    """The measurements of kernels PyTorch has too."""
    found = [
        row
        for row in rows(data / FILE)
        if row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16"
        and row["kernel_source"] in _KERNELS
        and float(row["window_size"] or 0) == 0
    ]
    columns = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
    every = measurements(
        "aiconfigurator",
        [work(*(int(row[name]) for name in columns)) for row in found],
        [DEVICES[row["system"]] for row in found],
        [float(row["latency_ms"]) * 1e-3 for row in found],
        [row["kernel_source"] for row in found],
    )
    return every.where(_is_believable(every))


def _is_believable(every: Measurements) -> Flags:
    fits = np.zeros(len(every), bool)
    for name in every.devices:
        here, target = every.device_ids == name, device(name)
        peak = peak_flop_per_second(target, "bfloat16", matrix=True)
        cached = every.table.bytes < target.sheet.number("l2_bytes")
        moved = every.table.bytes / every.seconds < _BELIEVABLE * target.memory_bytes_per_second
        fits |= here & (every.table.flop / every.seconds < _BELIEVABLE * peak) & (cached | moved)
    return fits
