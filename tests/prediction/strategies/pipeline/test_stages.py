"""Stages of a pipeline: every call in one of them, work and parameters conserved, lives of buffers."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from tests.support.divided_graphs import matrix_flop
from tests.support.hand_made_steps import environment, gpt2, graph

from foretrain.errors import InvalidRequest
from foretrain.prediction.cost_models import call_times
from foretrain.prediction.strategies.pipeline.cuts import StageLink
from foretrain.prediction.strategies.pipeline.pipeline import Pipeline, cut_program
from foretrain.prediction.strategies.pipeline.schedules import schedule
from foretrain.prediction.strategies.program import Axis, Program, gradients
from foretrain.workloads.graph import Graph, Phase, Role

MODELS = ("gpt2", "voice-linear", "resnet18")


def model(name: str) -> Graph:
    return gpt2() if name == "gpt2" else graph(name)


@cache
def cutting(name: str, stages: int, chunks: int = 1) -> Pipeline:
    of, at = model(name), environment("a100-sxm-80gb")
    order = schedule("interleaved" if chunks > 1 else "1f1b", stages, 4, chunks)
    times = call_times(at.model.price(of, at.device))
    return cut_program(Program(of, micro_batches=4), times.device, order, StageLink())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stages", [2, 4])
def test_every_call_is_in_exactly_one_stage_and_the_optimizer_in_all(name: str, stages: int) -> None:
    of = model(name)
    seen = Counter(int(call) for stage in cutting(name, stages).stages for call in stage.calls)
    for index, call in enumerate(of.calls):
        if call.phase is Phase.OPTIMIZER:
            assert 1 <= seen[index] <= stages
        else:
            assert seen[index] == 1
    for stage in cutting(name, stages).stages:
        assert (np.diff(stage.calls) > 0).all()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stages", [2, 4])
def test_work_is_conserved(name: str, stages: int) -> None:
    result = sum(matrix_flop(stage.program.graph) for stage in cutting(name, stages).stages)
    assert result == pytest.approx(matrix_flop(model(name)))


@pytest.mark.parametrize("name", ["voice-linear", "resnet18"])
def test_parameters_gradients_and_state_are_conserved(name: str) -> None:
    of = model(name)
    for role in (Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE):
        whole = Counter(buffer.name for buffer in of.buffers if buffer.role is role)
        result: Counter[str] = Counter()
        for stage in cutting(name, 4).stages:
            result += Counter(b.name for b in stage.program.graph.buffers if b.role is role)
        assert result == whole


def test_a_tied_embedding_is_held_by_both_of_its_stages() -> None:
    whole = gpt2().parameters
    result = sum(stage.program.graph.parameters for stage in cutting("gpt2", 4).stages)
    table = next(b for b in gpt2().buffers if b.name == "tokens.weight")
    assert result == whole + gpt2().specs[table.spec].elements


CUTS = [(name, *cut) for name in MODELS for cut in ((2, 1), (4, 1), (2, 2))]
CUTS.remove(("voice-linear", 2, 2))  # it has too few layers for two chunks on each device


@pytest.mark.parametrize(("name", "stages", "chunks"), CUTS)
def test_shares_of_the_update_sum_to_one(name: str, stages: int, chunks: int) -> None:
    assert sum(cutting(name, stages, chunks).update_shares) == pytest.approx(1.0)


def test_chunks_of_a_device_are_its_stage() -> None:
    result = cutting("gpt2", 2, 2)
    assert len(result.parts) == 4
    assert [list(result.of_stage(stage)) for stage in (0, 1)] == [[0, 2], [1, 3]]
    for stage in (0, 1):
        parts = [set(result.parts[part].calls.tolist()) for part in result.of_stage(stage)]
        assert set(result.stages[stage].calls.tolist()) == set.union(*parts)
        flop = sum(matrix_flop(result.parts[part].program.graph) for part in result.of_stage(stage))
        assert flop == pytest.approx(matrix_flop(result.stages[stage].program.graph))


@pytest.mark.parametrize("name", MODELS)
def test_a_stage_is_a_graph_of_its_own(name: str) -> None:
    for stage in cutting(name, 4).stages:
        of = stage.program.graph
        count = len(of.calls)
        for buffer in of.buffers:
            assert -1 <= buffer.born <= buffer.dies <= count
        for index, call in enumerate(of.calls):
            assert all(0 <= number < len(of.buffers) for number in (*call.reads, *call.writes))
            assert call.forward is None or call.forward < index
            lives = [of.buffers[number] for number in call.reads]
            assert all(buffer.born <= index <= buffer.dies for buffer in lives)
        assert stage.program.degree(Axis.PIPELINE) == 4
        assert {gradient.parameter for gradient in gradients(of)} <= set(of.trained_names) | {"tokens.weight"}


def test_cuts_balance_the_stages() -> None:
    at = environment("a100-sxm-80gb")
    times = call_times(at.model.price(gpt2(), at.device)).device
    busy = [times[stage.calls].sum() for stage in cutting("gpt2", 4).stages]
    assert max(busy) < 1.5 * sum(busy) / 4


def test_more_stages_than_layers_are_refused() -> None:
    of, at = graph("mnist-cnn"), environment("a100-sxm-80gb")
    times = call_times(at.model.price(of, at.device)).device
    with pytest.raises(
        InvalidRequest, match=r"500 stages for a model with \d+ layers .* use at most \d+ stages"
    ):
        cut_program(Program(of), times, schedule("1f1b", 500, 4), StageLink())
