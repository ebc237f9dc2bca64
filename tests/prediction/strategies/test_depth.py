"""Dividing and fusing a few equal blocks gives the program of all of them."""

from dataclasses import replace

import pytest

from foretrain.prediction.strategies.program import Program
from foretrain.prediction.strategies.strategy import divide_step, layout_of
from foretrain.workloads.depth import deepen
from foretrain.workloads.executed import ExecutedGraph, offload_optimizer
from foretrain.workloads.options import ResolvedOptions
from foretrain.workloads.readers import read_model
from foretrain.workloads.workload import FEW_BLOCKS, Workload, trace_workload
from foretrain.workloads.zoo import BuildOptions

EXTRA = 3
BF16 = ResolvedOptions(precision="bf16")
MEGATRON = replace(BF16, framework="megatron", weights="bf16", master_weights=True, gradients="fp32")
STEPS = {
    "eager": BF16,
    "compiled": replace(BF16, compile=True),
    "megatron": MEGATRON,
    "megatron, recomputed": replace(MEGATRON, checkpoint_activations=True),
    "offloaded": replace(BF16, offload=("optimizer",)),
}
CASES = [
    ("llama3.2-1b", "eager", "ddp"),
    ("llama3.2-1b", "compiled", "ddp"),
    ("llama3.2-1b", "megatron", "ddp"),
    ("llama3.2-1b", "offloaded", "ddp"),
    ("llama3.2-1b", "eager", "tp=8"),
    ("llama3.2-1b", "eager", "tp=2,cp=2,dp=2"),
    ("llama3.2-1b", "megatron", "tp=4,pp=2,zero=1"),
    ("llama3.2-1b", "megatron, recomputed", "tp=4,dp=2,sp=no"),
    ("llama3.2-1b", "compiled", "tp=2,dp=4"),
    ("gpt2", "eager", "tp=2,dp=4"),
    ("gpt2", "compiled", "fsdp"),
    ("gpt2", "megatron, recomputed", "tp=4,dp=2,tp-overlap=yes"),
    ("bert-base", "compiled", "tp=4,dp=2"),
    ("bert-base", "megatron", "tp=4,dp=2"),
    ("vit-b-16", "megatron", "ddp"),
]
DIRECT = [
    ("vit-b-16", "eager", "tp=4,dp=2"),  # its notes have a share of the whole
    ("vit-b-16", "compiled", "ddp"),  # its layout depends on the number of all calls
    ("t5-small", "compiled", "ddp"),  # what all blocks share is fused in other places
    ("t5-small", "eager", "tp=8"),
]
"""Programs that depend on all blocks, so that all are divided and fused."""


@pytest.mark.parametrize(("name", "how", "strategy"), CASES + DIRECT)
def test_a_few_blocks_divided_and_fused_are_all_of_them(name: str, how: str, strategy: str) -> None:
    sources = (read_model(name).with_blocks(blocks) for blocks in FEW_BLOCKS)
    few, more = (trace_workload(Workload(each, BuildOptions(batch=2), STEPS[how])) for each in sources)
    deep = offload_optimizer(deepen(few, more, EXTRA))
    whole = replace(deep)  # without the blocks it was derived from
    assert deep.repeats is not None
    assert whole.repeats is None
    layout = layout_of(strategy, 8, 8)
    derived, direct = divide_step(ExecutedGraph(deep), layout), divide_step(ExecutedGraph(whole), layout)
    assert (derived.graph.repeats is not None) == ((name, how, strategy) in CASES)
    assert_same(derived, direct)


def assert_same(derived: Program, direct: Program) -> None:
    assert derived.graph.specs == direct.graph.specs
    for one, other in zip(derived.graph.calls, direct.graph.calls, strict=True):
        assert one == other
    for own, others in zip(derived.graph.buffers, direct.graph.buffers, strict=True):
        assert own == others
    assert derived == direct
