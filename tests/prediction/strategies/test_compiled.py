"""Compiled steps on many devices: divided first, fused afterwards: compiling never undoes a division."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from tests.support.divided_graphs import matrix_flop, role_bytes
from tests.support.hand_made_steps import environment

from foretrain.prediction.step.parallel import ParallelStep, predict_step
from foretrain.prediction.strategies.program import Axis, Program
from foretrain.prediction.strategies.strategy import divide_step, layout_of
from foretrain.workloads.executed import ExecutedGraph
from foretrain.workloads.fused_kernels import FUSED
from foretrain.workloads.graph import Role
from foretrain.workloads.options import WorkloadRequest
from foretrain.workloads.workload import executed_graph, executed_graph_at, workload_of

ON = "a100-sxm-80gb:4"
DIVISIONS = ["tp=4", "tp=4,sp", "cp=4", "tp=2,sp,cp=2"]


@cache
def graph(compiled: bool, model: str = "llama3.2-1b") -> ExecutedGraph:
    return executed_graph_at(
        workload_of(WorkloadRequest(model, batch=2, seq_len=512, precision="bf16", compile=compiled)), 2
    )


def program(strategy: str, compiled: bool) -> Program:
    return divide_step(graph(compiled), layout_of(strategy, 4, 4))


def step(strategy: str, compiled: bool) -> ParallelStep:
    return predict_step(graph(compiled), layout_of(strategy, 4, 4), 1, environment(ON))


@pytest.mark.parametrize("strategy", DIVISIONS)
def test_a_compiled_program_is_divided_as_the_eager_one(strategy: str) -> None:
    eager, compiled = program(strategy, False), program(strategy, True)
    assert any(call.name == FUSED for call in compiled.graph.calls)
    assert matrix_flop(compiled.graph) == matrix_flop(eager.graph)
    assert compiled.graph.parameters == eager.graph.parameters
    assert compiled.notes == eager.notes
    for role in (Role.PARAMETER, Role.GRADIENT, Role.OPTIMIZER_STATE):
        assert role_bytes(compiled.graph, role) == role_bytes(eager.graph, role)


@pytest.mark.parametrize("strategy", DIVISIONS)
def test_exchanges_stay_between_the_kernels_that_need_them(strategy: str) -> None:
    eager, compiled = program(strategy, False), program(strategy, True)
    assert [(e.name, e.verb, e.bytes) for e in compiled.exchanges] == [
        (e.name, e.verb, e.bytes) for e in eager.exchanges
    ]
    assert all(-1 <= e.after < e.before <= len(compiled.graph.calls) for e in compiled.exchanges)
    assert {e.axis for e in compiled.exchanges} <= {Axis.TENSOR, Axis.CONTEXT}


@pytest.mark.parametrize("strategy", [*DIVISIONS, "ddp", "fsdp", "pp=4", "tp=2,pp=2", "tp=2,dp=2,zero=1"])
def test_compiling_makes_no_step_slower(strategy: str) -> None:
    eager, compiled = step(strategy, False), step(strategy, True)
    assert compiled.run.computing_seconds < eager.run.computing_seconds
    assert compiled.seconds < eager.seconds


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("strategy", ["tp=2,pp=2", "tp=2,sp,pp=2", "tp=4"])
def test_a_hugging_face_model_in_tensor_and_pipeline_parallel(tmp_path: Path, strategy: str) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
        "max_position_embeddings": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    eager, compiled = (
        executed_graph(
            workload_of(
                WorkloadRequest(f"hf:{tmp_path}", batch=4, seq_len=16, precision="bf16", compile=compile_)
            )
        )
        for compile_ in (False, True)
    )
    layout = layout_of(strategy, 4, 4)
    assert matrix_flop(divide_step(compiled, layout).graph) == matrix_flop(divide_step(eager, layout).graph)
    at = environment(ON)
    fused, plain = (predict_step(each, layout, 1, at) for each in (compiled, eager))
    assert fused.seconds < plain.seconds
