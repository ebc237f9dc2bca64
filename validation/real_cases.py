"""What is really trained: strategies, models, workers and caps of the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretrain.units import GBIT, MBIT

CAPS: dict[str, float | None] = {"uncapped": None, "1 Gbit": GBIT, "200 Mbit": 200 * MBIT}
"""Bytes per second of each worker's network card, in each direction."""
WORKERS = (2, 4)
BATCHES = {"mlp": 64, "convnet": 32, "transformer": 8}
"""Samples of each worker, of one micro-batch in a pipeline."""
STRATEGIES = ("ddp", "parameter_server", "fsdp", "pipeline")
MICRO_BATCHES = 4


@dataclass(frozen=True)
class RealCase:
    """One configuration that is predicted and then run."""

    strategy: str
    model: str
    workers: int
    cap: str

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"{self.strategy}, {self.model}, {self.workers} workers, {self.cap}"

    @property
    def batch(self) -> int:
        """Samples one worker, or the whole pipeline, takes in a step."""
        return BATCHES[self.model] * (MICRO_BATCHES if self.strategy == "pipeline" else 1)


def cases(workers: int) -> Iterator[RealCase]:
    """All cases with this number of workers, by cap."""
    for cap in CAPS:
        for strategy in STRATEGIES:
            for model in BATCHES:
                yield RealCase(strategy, model, workers, cap)
