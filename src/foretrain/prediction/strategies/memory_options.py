"""How a strategy spends the memory of a device: what is divided, kept and gathered."""

from __future__ import annotations

from dataclasses import dataclass

from foretrain.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How the training around the graph is run.

    `data_parallel` devices share the work; `zero_stage` 1 shards optimizer state over them, 2 also gradients,
    3 also parameters. `keep_gradients` zeroes gradients in place (PyTorch before 2.0) instead of freeing
    them. `tune_convolutions` is `cudnn.benchmark`. `prefetching_loaders` copy batches ahead in a stream of
    their own; without one, a batch is copied when it is needed. `bucket_bytes` is how much of the gradients
    is reduced at once (DistributedDataParallel's `bucket_cap_mb`, 25 by default). `in_flight` micro-batches
    have their activations kept at once, as in a pipeline; `gathered_bytes` are outputs of other devices.
    Under ZeRO, state outside experts is divided over `dense_shards` times as many devices.
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
            raise InvalidRequest(f"{self.data_parallel} data-parallel devices: give at least 1")
        if self.zero_stage not in (0, 1, 2, 3):
            raise InvalidRequest(f"ZeRO stage {self.zero_stage} does not exist; stages are 0, 1, 2 and 3")
