"""Pipeline parallelism as a strategy: its keys and options. `step.pipeline` composes its step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies._base import MixedPrecision, Strategy
from foretrain.prediction.strategies.layout import Layout, one_of, whole_number
from foretrain.prediction.strategies.pipeline.schedules import SCHEDULES

_INTERLEAVED, _DEFAULT = "interleaved", "1f1b"


class PipelineParallel(Strategy):
    """`pp=P` cuts the model into P stages, run by a `schedule`, with one or more `chunks` per device."""

    name = "pipeline"
    keys = ("pp", "schedule", "chunks")
    form = "pp=P"
    order = 30

    def read(self, given: Mapping[str, str], layout: Layout) -> Layout:
        """`pp`, `schedule` and `chunks`."""
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
        return replace(layout, pipeline=stages, schedule=schedule, chunks=chunks)

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
