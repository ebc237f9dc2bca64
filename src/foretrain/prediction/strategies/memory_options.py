"""Options of a training step that determine its memory: sharding, gradients, buckets, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """Options of a training step that determine its memory.

    `data_parallel` is the number of replicas; `zero_stage` 1 shards optimizer state over them, 2 also
    gradients, 3 also parameters. `keep_gradients` zeroes gradients in place (PyTorch before 2.0) instead of
    freeing them. `tune_convolutions` is `cudnn.benchmark`. `prefetching_loaders` copy batches ahead on
    streams of their own; without them a batch is copied when it is needed. `bucket_bytes` is the size of a
    gradient bucket (DistributedDataParallel's `bucket_cap_mb`, 25 by default). `in_flight` is the number of
    micro-batches with saved activations at a time, as in a pipeline; `gathered_bytes` are outputs of other
    devices. Under ZeRO, state outside experts is divided over `dense_shards` times as many devices.
    """

    data_parallel: int = 1
    zero_stage: int = 0
    eight_bit_optimizer: bool = False
    keep_gradients: bool = False
    tune_convolutions: bool = False
    prefetching_loaders: int = 0
    bucket_bytes: int = 25 << 20
    in_flight: float = 1.0
    gathered_bytes: int = 0
    dense_shards: int = 1

    def __post_init__(self) -> None:
        if self.data_parallel < 1:
            raise InvalidRequest(f"data_parallel must be at least 1, got {self.data_parallel}")
        if self.zero_stage not in (0, 1, 2, 3):
            raise InvalidRequest(f"zero_stage must be 0, 1, 2 or 3, got {self.zero_stage}")
