"""Calibration of memory outside the graph: `facts/data/calibrations/memory.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import geometric_mean
from typing import Any

from foretrain.errors import InvalidData
from foretrain.facts.calibrations import calibration_content
from foretrain.facts.sheets import Kind

_FILE = "memory.toml"


@dataclass(frozen=True, slots=True)
class ContextSize:
    """Memory a process holds before its first tensor, on devices of one generation.

    `bytes` with the kernels of PyTorch and cuBLAS loaded; `convolution_bytes` are added by those of cuDNN.
    """

    bytes: float
    convolution_bytes: float
    kind: Kind
    source: str


@dataclass(frozen=True, slots=True)
class CommunicatorSize:
    """Buffers of one NCCL communicator on a device: between two devices, and among more.

    Measured over links of `link_bytes_per_second` per device and direction.
    """

    pair_bytes: float
    group_bytes: float
    link_bytes_per_second: float
    source: str

    def bytes(self, members: int, link_bytes_per_second: float) -> float:
        """The buffers for `members` devices: as many channels, each with its buffers, as the links need."""
        if members < 2:
            return 0.0
        size = self.pair_bytes if members == 2 else self.group_bytes
        return size * link_bytes_per_second / self.link_bytes_per_second


@dataclass(frozen=True, slots=True)
class Spread:
    """Measured over predicted: the 10th and 90th percentile, and the number of measurements.

    Geometric means of the quantiles of sources, each of which counts once: a run that is asked about is of a
    framework and a harness of its own.
    """

    p10: float
    p90: float
    source: str
    samples: int


@dataclass(frozen=True)
class MemoryCalibration:
    """The contents of the file. `contexts` is keyed by device generation; "any" applies to all others."""

    contexts: dict[str, ContextSize]
    cublas_bytes: dict[str, int]
    usable_share: float
    spread: Spread
    communicator: CommunicatorSize

    def context(self, generation: str) -> ContextSize:
        """The context on devices of a generation, or the assumed one without measurements."""
        return self.contexts.get(generation, self.contexts["any"])

    def cublas_workspace_bytes(self, generation: str) -> int:
        """The default workspace of one cuBLAS handle in PyTorch."""
        return self.cublas_bytes.get(generation, self.cublas_bytes["any"])


@cache
def memory_calibration() -> MemoryCalibration:
    """The shipped calibration."""
    content = calibration_content(_FILE)
    try:
        return _parsed(content)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidData(_FILE, f"incomplete or malformed: {error!r}") from error


def _parsed(content: dict[str, Any]) -> MemoryCalibration:
    return MemoryCalibration(
        contexts={
            generation: ContextSize(
                bytes=entry["bytes"],
                convolution_bytes=entry["convolution_bytes"],
                kind=Kind(entry["kind"]),
                source=entry["source"],
            )
            for generation, entry in content["context"].items()
        },
        cublas_bytes={generation: entry["bytes"] for generation, entry in content["cublas"].items()},
        usable_share=content["usable"]["share"],
        spread=spread_between(
            [(row["p10"], row["p90"], row["samples"]) for row in content["spread"]["sources"]],
            content["spread"]["source"],
        ),
        communicator=CommunicatorSize(
            content["communicator"]["pair_bytes"],
            content["communicator"]["group_bytes"],
            content["communicator"]["link_bytes_per_second"],
            content["communicator"]["source"],
        ),
    )


def spread_between(sources: Sequence[tuple[float, float, int]], source: str) -> Spread:
    """The spread of a source never seen, from the quantiles and sample sizes of others."""
    low, high, samples = zip(*sources, strict=True)
    return Spread(geometric_mean(low), geometric_mean(high), source, sum(samples))
