"""aiconfigurator: GEMM, prefill-attention and NCCL times on A100, L40S, H200 and B200.

Products are BF16 and FP8 kernels of inference stacks, timed in a loop over the same operands: operands that
fit in the cache are read from it, and small products are faster than the memory roofline. The A100 reaches
1.75 TB/s, so it is the 80 GB variant.

Attention is causal, BF16 and forward only. Only kernels that PyTorch also calls are read (FlashAttention 2
and 3; FlashInfer on the B200). Some rows claim no sliding window and yet are up to twelve times faster than
tensor cores or memory allow: rows above `_PLAUSIBLE_SHARE` of peak, or of bandwidth with more bytes than the
cache holds, are dropped.

NCCL tables cover four verbs on 2, 4 and 8 devices of one node. `message_size` counts elements of the whole
message (all-gather: of the result), not bytes: only then does one message take as long in half precision as
in one-byte integers. Repeats are reduced to their median per NCCL version, and versions to the median of
those: 2.29.2 on the B200 needs up to twice as long as 2.27.5 and 2.28.9 for 8 to 32 MiB. The switch sums
half precision only, so half-precision rows are read by default.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

import numpy as np

from calibration.datasets.measurements import CollectiveTime, Measurements, measurements, rows
from calibration.datasets.works import product
from foretrain.facts.devices import device
from foretrain.prediction.collectives.costs import Verb
from foretrain.prediction.operators.pricing import Flags, peak_flop_per_second
from foretrain.workloads.ops import Direction, Kind, Work

GEMM_FILE = Path("aiconfigurator/gemm.csv.gz")
ATTENTION_FILE = Path("aiconfigurator/context_attention.csv.gz")
NCCL_FILE = Path("aiconfigurator/nccl.csv.gz")
SOURCE = "aiconfigurator"
DEVICES = {"a100_sxm": "a100-sxm-80gb", "l40s": "l40s", "h200_sxm": "h200-sxm", "b200_sxm": "b200"}
_GEMM_DTYPES = {"bfloat16": "bfloat16", "fp8": "float8_e4m3fn"}
_SHORTEST = 0.01
_ATTENTION_KERNELS = frozenset(
    {
        "fa3",
        "flash_attention",
        "vllm_flash_attn",
        "vllm_flash_attn_fa2",
        "vllm_flash_attn_fa3",
        "vllm_flashinfer",
    }
)
_PLAUSIBLE_SHARE = 0.85
"""A cut chosen here, not a published bound: plain products of these GPUs stay below it when large."""
_ATTENTION_ITEM_BYTES = 2
_NCCL_MACHINES = {
    "a100_sxm": ("a100-sxm-80gb:8", "nvswitch"),
    "h200_sxm": ("h200-sxm:8", "nvswitch"),
    "b200_sxm": ("b200:8", "nvswitch"),
    "l40s": ("l40s:8", "host-bridge"),
}
_NCCL_VERBS = {
    "all_reduce": Verb.ALL_REDUCE,
    "all_gather": Verb.ALL_GATHER,
    "reduce_scatter": Verb.REDUCE_SCATTER,
    "alltoall": Verb.ALL_TO_ALL,
}
_NCCL_ITEM_BYTES = {"half": 2, "int8": 1}


def read_products(data: Path) -> Measurements:
    """The BF16 and the plain FP8 products."""
    records = [row for row in rows(data / GEMM_FILE) if row["dtype"] in _GEMM_DTYPES]
    return measurements(
        SOURCE,
        [
            product(
                1, int(row["m"]), int(row["n"]), int(row["k"]), _GEMM_DTYPES[row["dtype"]], is_linear=True
            )
            for row in records
        ],
        [DEVICES[row["system"]] for row in records],
        [float(row["latency_ms"]) * 1e-3 for row in records],
        [row["dtype"] for row in records],
    )


def start_cycles(data: Path) -> float:
    """Cycles at boost clock of the shortest hundredth of kernels, the median over devices."""
    seconds: dict[str, list[float]] = {}
    for row in rows(data / GEMM_FILE):
        if row["dtype"] == "bfloat16":
            seconds.setdefault(row["system"], []).append(float(row["latency_ms"]) * 1e-3)
    return median(
        float(np.quantile(each, _SHORTEST)) * device(DEVICES[name]).sheet.number("boost_clock_hertz")
        for name, each in seconds.items()
    )


def attention_work(batch: int, length: int, heads: int, kv_heads: int, head: int) -> Work:
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
    tokens = _ATTENTION_ITEM_BYTES * batch * length * head
    read, write = float(tokens * (heads + 2 * kv_heads)), float(tokens * heads)
    return Work(Kind.ATTENTION, Direction.FORWARD, dims, "bfloat16", flop, read, write)


def read_attention(data: Path) -> Measurements:
    """The measurements of kernels PyTorch has too."""
    records = [
        row
        for row in rows(data / ATTENTION_FILE)
        if row["attn_dtype"] == row["kv_cache_dtype"] == "bfloat16"
        and row["kernel_source"] in _ATTENTION_KERNELS
        and float(row["window_size"] or 0) == 0
    ]
    columns = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
    every = measurements(
        SOURCE,
        [attention_work(*(int(row[name]) for name in columns)) for row in records],
        [DEVICES[row["system"]] for row in records],
        [float(row["latency_ms"]) * 1e-3 for row in records],
        [row["kernel_source"] for row in records],
    )
    return every.where(_is_plausible(every))


def _is_plausible(every: Measurements) -> Flags:
    fits = np.zeros(len(every), bool)
    for name in every.devices:
        here, target = every.device_ids == name, device(name)
        peak = peak_flop_per_second(target, "bfloat16", matrix=True)
        cached = every.table.bytes < target.sheet.number("l2_bytes")
        moved = every.table.bytes / every.seconds < _PLAUSIBLE_SHARE * target.memory_bytes_per_second
        fits |= here & (every.table.flop / every.seconds < _PLAUSIBLE_SHARE * peak) & (cached | moved)
    return fits


def read_collectives(data: Path, dtype: str = "half") -> tuple[CollectiveTime, ...]:
    """The median time of each verb, machine, number of devices and size."""
    seconds: dict[tuple[str, str, int, int], dict[str, list[float]]] = {}
    for row in rows(data / NCCL_FILE):
        if row["nccl_dtype"] == dtype:
            size = int(float(row["message_size"])) * _NCCL_ITEM_BYTES[dtype]
            key = (row["system"], row["op_name"], int(float(row["num_gpus"])), size)
            seconds.setdefault(key, {}).setdefault(row["nccl"], []).append(float(row["latency_ms"]) * 1e-3)
    return tuple(
        CollectiveTime(
            SOURCE,
            *_NCCL_MACHINES[system],
            _NCCL_VERBS[verb],
            devices,
            size,
            median(median(repeats) for repeats in versions.values()),
            sums=dtype == "half",
        )
        for (system, verb, devices, size), versions in sorted(seconds.items())
    )
