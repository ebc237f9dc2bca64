"""Pipelines cut before named modules."""

import numpy as np
import pytest

from foretrain.errors import InvalidRequest
from foretrain.prediction.strategies.pipeline.pipeline import cut_program_before
from foretrain.prediction.strategies.pipeline.schedules import schedule
from foretrain.prediction.strategies.program import Program
from foretrain.workloads.graph import Buffer, Call, Graph, Phase, Role, Spec


def _chain() -> Graph:
    """Three blocks and a loss outside of modules; each call reads what the one before it wrote."""
    modules = ("blocks.0", "blocks.1", "blocks.10", "")
    calls = tuple(
        Call(f"aten.{'relu' if module else 'sum'}", Phase.FORWARD, module, (0,), (0,), (i,), (i + 1,), {})
        for i, module in enumerate(modules)
    )
    buffers = tuple(Buffer(0, i - 1, i + 1, Role.ACTIVATION) for i in range(len(modules) + 1))
    return Graph((Spec((4,), "float32"),), calls, buffers, (), 1, 1, 0)


def _stages(*starts: str) -> list[list[str]]:
    order = schedule("1f1b", len(starts) + 1, 4)
    pipeline = cut_program_before(Program(_chain()), np.ones(4), order, starts)
    return [[call.module or call.name for call in part.program.graph.calls] for part in pipeline.parts]


def test_a_stage_begins_with_the_first_call_of_its_module() -> None:
    assert _stages("blocks.1") == [["blocks.0"], ["blocks.1", "blocks.10", "aten.sum"]]


def test_outside_of_modules_an_operator_names_its_call() -> None:
    assert _stages("blocks.1", "aten.sum") == [["blocks.0"], ["blocks.1", "blocks.10"], ["aten.sum"]]


def test_stages_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="stages start in order"):
        _stages("blocks.10", "blocks.1")


def test_as_many_starts_as_cuts() -> None:
    with pytest.raises(InvalidRequest, match="2 stages need 1 modules to start at"):
        cut_program_before(Program(_chain()), np.ones(4), schedule("1f1b", 2, 4), ("blocks.1", "blocks.10"))
