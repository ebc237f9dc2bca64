"""Pipeline parallelism as a strategy: its keys and options. `step.pipeline` composes its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies._base import MixedPrecision, Strategy
from foretrain.prediction.strategies.layout import Layout, one_of, whole_number
from foretrain.prediction.strategies.pipeline.schedules import SCHEDULES

_INTERLEAVED, _DEFAULT = "interleaved", "1f1b"
_BALANCED = "balanced"


class PipelineParallel(Strategy):
    """`pp=P` cuts the model into P stages, run by a `schedule`, with one or more `chunks` per device.

    `layers=9+10+10+9` gives the numbers of layers, `layers=balanced` balances their times.
    """

    name = "pipeline"
    keys = ("pp", "schedule", "chunks", "layers")
    form = "pp=P"
    order = 30

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`pp`, `schedule`, `chunks` and `layers`."""
        stages = whole_number("pp", given.get("pp", "1"))
        chunks = whole_number("chunks", given.get("chunks", "1"))
        default = _INTERLEAVED if "chunks" in given else _DEFAULT
        schedule = one_of("schedule", given.get("schedule", default), tuple(SCHEDULES))
        if chunks > 1 and schedule != _INTERLEAVED:
            raise InvalidRequest(
                f"schedule={schedule} runs one chunk per device, got chunks={chunks}; use "
                f"schedule={_INTERLEAVED}, or omit chunks"
            )
        if chunks > 1 and stages == 1:
            raise InvalidRequest(f"chunks={chunks} requires a pipeline: give pp=2 or more")
        layers = given.get("layers", "")
        counts = () if layers in ("", _BALANCED) else _layer_counts(layers, stages, chunks)
        if layers and stages == 1:
            raise InvalidRequest(f"layers={layers} requires a pipeline: give pp=2 or more")
        return replace(
            layout,
            pipeline=stages,
            schedule=schedule,
            chunks=chunks,
            stage_layers=counts,
            balances_stages=layers == _BALANCED,
        )

    def mixed_precision(self, layout: Layout) -> MixedPrecision:
        """As Megatron does."""
        return MixedPrecision.FP32_GRADIENTS if layout.pipeline > 1 else MixedPrecision.AUTOCAST

    def environment(self, layout: Layout) -> tuple[tuple[str, str, str], ...]:
        """Stages, chunks and schedule."""
        if layout.pipeline == 1:
            return ()
        chunks = ("PIPELINE_CHUNKS", str(layout.chunks), "parts of the model on each stage")
        return (
            ("PIPELINE_PARALLEL", str(layout.pipeline), "stages the layers are divided into"),
            *((chunks,) if layout.chunks > 1 else ()),
            ("PIPELINE_SCHEDULE", layout.schedule, "order of micro-batches in the pipeline"),
        )


def _layer_counts(text: str, stages: int, chunks: int) -> tuple[int, ...]:
    """The numbers of layers of all parts, in order."""
    given = text.split("+")
    if not all(count.isascii() and count.isdigit() and int(count) >= 1 for count in given):
        raise InvalidRequest(
            f"layers={text} is neither whole numbers of at least 1, such as layers={_example(stages)}, nor "
            f"layers={_BALANCED}"
        )
    parts = stages * chunks
    if len(given) != parts:
        several = f"{stages} stages of {chunks} chunks" if chunks > 1 else f"{stages} stages"
        raise InvalidRequest(f"layers={text} gives {len(given)} numbers for {several}; give {parts}")
    return tuple(map(int, given))


def _example(stages: int) -> str:
    return "+".join(["10"] * stages)
